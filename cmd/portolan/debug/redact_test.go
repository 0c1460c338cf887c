package debug

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// TestRedact: secrets go, in every form that people write them in, and the text around them
// stays.
func TestRedact(t *testing.T) {
	t.Parallel()
	pair := secrettest.New(t, time.Hour, "door.example")
	key := string(pair.Key)
	for name, c := range map[string]struct{ text, want string }{
		"nothing":              {"level=INFO msg=ready key=value", "level=INFO msg=ready key=value"},
		"a key":                {"a\n" + key + "b\n", "a\n[redacted]\nb\n"},
		"a key without an end": {"a " + key[:100], "a [redacted]"},
		"an escaped key":       {fmt.Sprintf(`{"k": %q}`, key), `{"k": "[redacted]\n"}`},
		"a key in base64":      {`{"tls.key":"` + base64.StdEncoding.EncodeToString(pair.Key) + `"}`, `{"tls.key":"[redacted]"}`},
		"a certificate stays":  {string(pair.Cert), string(pair.Cert)},
		"a sealing key":        {"portolan-sealing-key-1:AbCd_-12 x", "[redacted] x"},
		"a token of a user":    {`token="put_AABBCCDD_EEFFGGHH" x`, `token="[redacted]" x`},
		"a join token":         {"pjt_aaaaaaaaaaaa.bb", "[redacted]"},
		"a JWT":                {"err=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl end", "err=[redacted] end"},
		"a header":             {"Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer [redacted]"},
		"a URL":                {`"https://ann:pw@consul:8500/v1"`, `"https://[redacted]@consul:8500/v1"`},
		"a URL without a user": {"https://consul:8500/@x", "https://consul:8500/@x"},
		"a parameter":          {"GET /x?a=1&access_token=abc&b=2", "GET /x?a=1&access_token=[redacted]&b=2"},
		"a SPIFFE ID":          {"spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/web"},
	} {
		if got := string(redact([]byte(c.text))); strings.TrimSpace(got) != strings.TrimSpace(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
