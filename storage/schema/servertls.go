package schema

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"

	networking "istio.io/api/networking/v1alpha3"
)

// maxCertificates is how many certificates a server may have: one for RSA and one for
// ECDSA.
const maxCertificates = 2

// checkServerTLS checks the TLS settings of a Gateway's server with protocol HTTPS or TLS.
func checkServerTLS(c checker, t *networking.ServerTLSSettings) {
	if t.GetHttpsRedirect() {
		c.at("httpsRedirect").warn("has no effect with this protocol: set it on the server of protocol HTTP, which sends clients here")
	}
	mode := t.GetMode()
	if mode == networking.ServerTLSSettings_PASSTHROUGH || mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH {
		checkPassthrough(c, t)
		return
	}
	checkVersions(c, t)
	checkCiphers(c.at("cipherSuites"), t.GetCipherSuites())
	checkPins(c, t)
	switch mode {
	case networking.ServerTLSSettings_ISTIO_MUTUAL:
		for _, name := range certificateFields(t) {
			c.at(name).fail("excludes mode ISTIO_MUTUAL, which uses the certificate and the authority of the mesh: leave it out, or use MUTUAL")
		}
	default:
		checkSources(c, t)
		checkServerFiles(c, t)
		if mode == networking.ServerTLSSettings_SIMPLE {
			checkUnusedClientSettings(c, t)
		}
	}
}

// certificateFields are the fields of a server's certificates and authorities that are set,
// in order.
func certificateFields(t *networking.ServerTLSSettings) (out []string) {
	for _, name := range []string{
		"serverCertificate", "privateKey", "caCertificates", "caCrl",
		"credentialName", "credentialNames", "caCertCredentialName", "tlsCertificates",
	} {
		if fieldSet(t, name) {
			out = append(out, name)
		}
	}
	return out
}

// checkPassthrough checks a server that does not terminate TLS.
func checkPassthrough(c checker, t *networking.ServerTLSSettings) {
	unless := ""
	if t.GetMode() == networking.ServerTLSSettings_PASSTHROUGH {
		unless = ", the mode unless set"
	}
	for _, name := range certificateFields(t) {
		c.at(name).fail("excludes mode %s%s: proxies pass the TLS on and do not end it: use SIMPLE or MUTUAL, or leave it out", t.GetMode(), unless)
	}
	for _, name := range []string{
		"subjectAltNames", "verifyCertificateSpki", "verifyCertificateHash", "minProtocolVersion", "maxProtocolVersion", "cipherSuites", "insecureSkipVerify",
	} {
		if fieldSet(t, name) {
			c.at(name).warn("has no effect with mode %s%s: proxies pass the TLS on and do not end it", t.GetMode(), unless)
		}
	}
}

func fieldSet(m proto.Message, name string) bool {
	r := m.ProtoReflect()
	return r.Has(r.Descriptor().Fields().ByJSONName(name))
}

// checkSources checks that the certificates of a server come from one source.
func checkSources(c checker, t *networking.ServerTLSSettings) {
	first := ""
	for _, source := range []struct {
		name string
		set  bool
	}{
		{"credentialName", t.GetCredentialName() != ""}, {"credentialNames", len(t.GetCredentialNames()) > 0},
		{"serverCertificate", t.GetServerCertificate() != "" || t.GetPrivateKey() != ""}, {"tlsCertificates", len(t.GetTlsCertificates()) > 0},
	} {
		switch {
		case source.set && first != "":
			c.at(source.name).fail("excludes %s: the certificates come from one of credentialName, credentialNames, serverCertificate with privateKey, and tlsCertificates", first)
		case source.set:
			first = source.name
		}
	}
	c.at("credentialNames").certificates(len(t.GetCredentialNames()))
	c.at("tlsCertificates").certificates(len(t.GetTlsCertificates()))
	c.at("credentialName").credential(t.GetCredentialName())
	each(c.at("credentialNames"), t.GetCredentialNames(), func(c checker, name string) {
		c.required(name)
		c.credential(name)
	})
	unique(c.at("credentialNames"), t.GetCredentialNames(), identity)
	c.at("caCertCredentialName").credential(t.GetCaCertCredentialName())
	switch {
	case !fromSecrets(t):
		if t.GetCaCertCredentialName() != "" {
			c.at("caCertCredentialName").warn("has no effect without credentialName or credentialNames: use caCertificates beside files")
		}
	case t.GetCaCrl() != "":
		c.at("caCrl").fail("excludes %s: store the list in the secret, as crl or ca.crl", first)
	case t.GetCaCertificates() != "":
		c.at("caCertificates").warn("has no effect beside %s: store the authority in the secret as cacert or ca.crt, in one whose name ends in -cacert, or name one in caCertCredentialName", first)
	}
}

func (c checker) certificates(n int) {
	if n > maxCertificates {
		c.fail("has %d: a server has at most %d, one of RSA and one of ECDSA", n, maxCertificates)
	}
}

// file checks the path of a file on the proxy's machine.
func (c checker) file(path string) {
	if strings.Contains(path, fileSeparator) {
		c.fail("has a %q, which stands between the names of files: rename the file", fileSeparator)
	}
	if path != "" && !strings.HasPrefix(path, "/") {
		c.warn("is no path from the root: each proxy looks for the file where it was started: begin it with /")
	}
}

// fileSeparator stands between the files of one secret in its name.
const fileSeparator = "~"

func fromSecrets(t *networking.ServerTLSSettings) bool {
	return t.GetCredentialName() != "" || len(t.GetCredentialNames()) > 0
}

// checkServerFiles checks that the settings name the files that the mode needs.
func checkServerFiles(c checker, t *networking.ServerTLSSettings) {
	mode := t.GetMode()
	mutual := mode == networking.ServerTLSSettings_MUTUAL || mode == networking.ServerTLSSettings_OPTIONAL_MUTUAL
	if !mutual && mode != networking.ServerTLSSettings_SIMPLE || fromSecrets(t) {
		return
	}
	needed := func(c checker, name, path string) {
		if path == "" {
			c.at(name).fail("is missing: mode %s needs it", mode)
		}
		c.at(name).file(path)
	}
	c.at("caCrl").file(t.GetCaCrl())
	if len(t.GetTlsCertificates()) == 0 {
		needed(c, "serverCertificate", t.GetServerCertificate())
		needed(c, "privateKey", t.GetPrivateKey())
	}
	each(c.at("tlsCertificates"), t.GetTlsCertificates(), func(c checker, one *networking.ServerTLSSettings_TLSCertificate) {
		needed(c, "serverCertificate", one.GetServerCertificate())
		needed(c, "privateKey", one.GetPrivateKey())
		if one.GetCaCertificates() != "" {
			c.at("caCertificates").warn("has no effect: the authority of clients is caCertificates of tls")
		}
	})
	if mutual {
		needed(c, "caCertificates", t.GetCaCertificates())
	}
	if t.GetCaCrl() != "" && !mutual {
		c.at("caCrl").fail("has no use with mode SIMPLE, which asks clients for no certificate: leave it out")
	}
}

// checkUnusedClientSettings warns of settings for client certificates on a server that requests
// none.
func checkUnusedClientSettings(c checker, t *networking.ServerTLSSettings) {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"caCertificates", t.GetCaCertificates() != "" && !fromSecrets(t)}, {"caCertCredentialName", t.GetCaCertCredentialName() != "" && fromSecrets(t)},
		{"subjectAltNames", len(t.GetSubjectAltNames()) > 0}, {"verifyCertificateSpki", len(t.GetVerifyCertificateSpki()) > 0},
		{"verifyCertificateHash", len(t.GetVerifyCertificateHash()) > 0}, {"insecureSkipVerify", t.GetInsecureSkipVerify().GetValue()},
	} {
		if field.set {
			c.at(field.name).warn("has no effect with mode SIMPLE, which asks clients for no certificate: use MUTUAL")
		}
	}
}

func checkVersions(c checker, t *networking.ServerTLSSettings) {
	lowest, highest := t.GetMinProtocolVersion(), t.GetMaxProtocolVersion()
	if highest != networking.ServerTLSSettings_TLS_AUTO && lowest > highest {
		c.at("minProtocolVersion").warn("%s is above maxProtocolVersion, %s: no client can connect", lowest, highest)
	}
	if old := lowest == networking.ServerTLSSettings_TLSV1_0 || lowest == networking.ServerTLSSettings_TLSV1_1; old && len(t.GetCipherSuites()) == 0 {
		c.at("minProtocolVersion").warn("%s needs cipherSuites that go with it: those used unless set are of TLS 1.2 and later", lowest)
	}
}

// checkCiphers warns of cipher suites that proxies do not get. It refuses an expression
// that takes suites away: without it proxies would allow these suites.
func checkCiphers(c checker, suites []string) {
	for i, suite := range suites {
		switch first := slices.Index(suites, suite); {
		case strings.HasPrefix(suite, "!"), strings.HasPrefix(suite, "-"):
			c.index(i).fail("%q takes suites away: write out those that may be used", suite)
		case !KnownCipher(suite):
			c.index(i).warn("%q is no cipher suite that proxies know, and is left out", suite)
		case first < i:
			c.index(i).warn("%q stands twice, also at %s", suite, c.index(first).path())
		}
	}
}

// KnownCipher says whether proxies accept a name as a cipher suite of TLS 1.2 or before:
// one suite by its name in OpenSSL, several of equal preference as [A|B], or ALL. They
// refuse a socket with any other.
func KnownCipher(suite string) bool {
	group, ok := strings.CutPrefix(suite, "[")
	group, closed := strings.CutSuffix(group, "]")
	if ok && closed {
		return !slices.ContainsFunc(strings.Split(group, "|"), func(one string) bool { return !slices.Contains(cipherSuites(), one) })
	}
	return suite == "ALL" || slices.Contains(cipherSuites(), suite)
}

// cipherSuites returns the names of single suites that proxies know.
func cipherSuites() []string {
	return []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
		"ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
		"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA", "DES-CBC3-SHA",
	}
}

// checkPins checks the hashes of certificates that proxies compare, as Envoy does.
func checkPins(c checker, t *networking.ServerTLSSettings) {
	each(c.at("verifyCertificateSpki"), t.GetVerifyCertificateSpki(), func(c checker, pin string) {
		if sum, err := base64.StdEncoding.DecodeString(pin); err != nil || len(sum) != 32 {
			c.fail("must be the SHA-256 of a public key in base64, 44 characters, is %q", pin)
		}
	})
	each(c.at("verifyCertificateHash"), t.GetVerifyCertificateHash(), func(c checker, pin string) {
		if sum, err := hex.DecodeString(strings.ReplaceAll(pin, ":", "")); err != nil || len(sum) != 32 || len(pin) != 64 && len(pin) != 95 {
			c.fail("must be the SHA-256 of a certificate in hex, 64 characters or 95 with colons, is %q", pin)
		}
	})
}

// kubernetesScheme may stand before the name of a credential, as in Istio.
const kubernetesScheme = "kubernetes://"

// credential warns of a credential whose name no secret can have.
func (c checker) credential(name string) {
	if name == "" || name == "builtin://" { // the certificate of the mesh
		return
	}
	rest := strings.TrimPrefix(name, kubernetesScheme)
	if scheme, _, other := strings.Cut(rest, "://"); other {
		c.warn("%q is not served: %s is no place of secrets here: name a Secret", name, scheme)
		return
	}
	namespace, secret, ok := strings.Cut(rest, "/")
	if !ok {
		namespace, secret = "", rest
	}
	if ok && len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(secret)) > 0 {
		c.warn("%q can be the name of no Secret: write its name alone, in lower case", name)
	}
}
