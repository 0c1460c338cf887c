package debug

import "regexp"

// redacted stands where a secret was.
const redacted = "[redacted]"

// secrets are the forms of keys, tokens and passwords, each with what stands in its place.
// Servers give none away. This is for what people put where it does not belong: a token in a
// message, a password in a URL.
var secrets = []struct {
	form *regexp.Regexp
	by   string
}{
	// Private keys in PEM, with line breaks as they are or escaped.
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`), redacted},
	// The same in base64, from the word BEGIN on. LS0tLS1CRUdJTi is "-----BEGIN".
	{regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/_-]*(?:UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW)[A-Za-z0-9+/_=-]*`), redacted},
	{regexp.MustCompile(`portolan-sealing-key-1:[A-Za-z0-9_-]+`), redacted},
	// Tokens of users, machines and servers, and JWTs.
	{regexp.MustCompile(`\b(put_|pjt_|pst_)[A-Za-z0-9_.=-]{8,}`), redacted},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}`), "$1 " + redacted},
	// The user and the password of a URL, and parameters of one that are secrets.
	{regexp.MustCompile(`(\b[a-z][a-z0-9+.-]*://)[^/\s"'@]+@`), "${1}" + redacted + "@"},
	{regexp.MustCompile(`(?i)([?&](?:access_token|token|password|secret|key|sig|signature)=)[^&\s"']+`), "${1}" + redacted},
}

// redact returns a text without what looks like a secret.
func redact(text []byte) []byte {
	for _, s := range secrets {
		text = s.form.ReplaceAll(text, []byte(s.by))
	}
	return text
}
