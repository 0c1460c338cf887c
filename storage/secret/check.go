package secret

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
)

// The names of entries that gateways and proxies look for, as in Istio: the names in
// Kubernetes' TLS secrets, and the shorter names in Opaque secrets.
const (
	TLSCert, TLSKey, TLSAuthority, TLSRevoked = "tls.crt", "tls.key", "ca.crt", "ca.crl"
	Cert, Key, Authority, Revoked             = "cert", "key", "cacert", "crl"
)

// maxBytes bounds the data of a secret, as in Kubernetes.
const maxBytes = 1 << 20

// maxName bounds the name of an entry, as in Kubernetes.
const maxName = 253

// Check reports, by the name of the entry, what is wrong with the data of a request: pairs
// that do not match, entries that hold no certificate, keys with a passphrase. The name ""
// means the data as a whole. The reports quote nothing of the data.
func Check(kind string, entries map[string][]byte, report func(name, format string, args ...any)) {
	total := 0
	for _, name := range Names(entries) {
		total += len(entries[name])
		if !validName(name) {
			report(name, "a name has letters, digits, '-', '_' and '.', and at most %d of them", maxName)
		}
	}
	if total > maxBytes {
		report("", "has %d bytes, and may have %d", total, maxBytes)
		return
	}
	pair := func(cert, key string, required bool) {
		certificates, hasCert := entries[cert]
		private, hasKey := entries[key]
		switch {
		case !hasCert && !hasKey && !required:
		case !hasCert:
			report(cert, "is missing: it has the certificate of %s, with its chain, in PEM", key)
		case !hasKey:
			report(key, "is missing: it has the private key of %s, in PEM", cert)
		default:
			checkPair(cert, key, certificates, private, report)
		}
	}
	pair(TLSCert, TLSKey, kind == TLS)
	authorities, lists := []string{TLSAuthority}, []string{TLSRevoked}
	if inPEM(entries, Cert, Key, Authority, Revoked) { // without PEM these names have no defined meaning
		pair(Cert, Key, false)
		authorities, lists = append(authorities, Authority), append(lists, Revoked)
	}
	for _, name := range authorities {
		if text, ok := entries[name]; ok {
			checkCertificates(name, text, report)
		}
	}
	for _, name := range lists {
		if text, ok := entries[name]; ok {
			checkRevoked(name, text, report)
		}
	}
}

func inPEM(entries map[string][]byte, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(entries[name], []byte("-----BEGIN")) })
}

func validName(name string) bool {
	return name != "" && len(name) <= maxName && name != "." && !strings.HasPrefix(name, "..") &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
		})
}

func checkPair(cert, key string, certificates, private []byte, report func(name, format string, args ...any)) {
	good := checkCertificates(cert, certificates, report)
	if why := notAKey(private); why != "" {
		report(key, "%s", why)
		return
	}
	if !good {
		return
	}
	pair, err := tls.X509KeyPair(certificates, private)
	if err != nil {
		report(key, "is not the key of the first certificate in %s: put the certificate of this key first, or the right key here", cert)
		return
	}
	if why := refusedKey(pair.Leaf.PublicKey); why != "" {
		report(cert, "%s", why)
	}
}

// refusedKey says why proxies refuse a certificate with this public key; empty if they do
// not.
func refusedKey(public any) string {
	const leastBits = 2048
	switch k := public.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < leastBits {
			return fmt.Sprintf("is for an RSA key of %d bits, and proxies refuse fewer than %d: make a new key", bits, leastBits)
		}
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P224() {
			return "is for a key on the curve P-224, and proxies refuse all but P-256, P-384 and P-521: make a new key"
		}
	}
	return ""
}

// notAKey says why some text is not one private key in PEM; empty if it is.
func notAKey(text []byte) string {
	keys := 0
	for _, block := range blocks(text) {
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return "has a passphrase, which nobody could give to a proxy: take it off with openssl pkey -in FILE -out FILE"
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			keys++
			if !readableKey(block.Bytes) {
				return "is a private key of an unknown form: give one of RSA, ECDSA or Ed25519 in PKCS #8, PKCS #1 or SEC 1"
			}
		case block.Type == "CERTIFICATE":
			return "has a certificate: a private key belongs here"
		}
	}
	switch {
	case keys == 0:
		return "has no private key in PEM (-----BEGIN PRIVATE KEY-----)"
	case keys > 1:
		return fmt.Sprintf("has %d private keys: one belongs here", keys)
	}
	return ""
}

func readableKey(der []byte) bool {
	if _, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		return true
	}
	if _, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return true
	}
	_, err := x509.ParseECPrivateKey(der)
	return err == nil
}

// checkCertificates returns false if it reports anything.
func checkCertificates(name string, text []byte, report func(name, format string, args ...any)) bool {
	n := 0
	for _, block := range blocks(text) {
		switch {
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			report(name, "has a private key: certificates belong here, and nothing else")
			return false
		case block.Type != "CERTIFICATE":
			report(name, "has a %.40q: certificates belong here, and nothing else", block.Type)
			return false
		}
		n++
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			report(name, "certificate %d cannot be read: %v", n, err)
			return false
		}
	}
	if n == 0 {
		hint := ""
		if _, err := x509.ParseCertificate(text); err == nil {
			hint = ", but one in DER: openssl x509 -inform DER -in FILE -out FILE makes PEM of it"
		} else if isPKCS12(text) {
			hint = ", but is PKCS #12: openssl pkcs12 -in FILE -nokeys -out FILE takes the certificates out of it, and -nocerts -noenc the key"
		}
		report(name, "has no certificate in PEM (-----BEGIN CERTIFICATE-----)%s", hint)
	}
	return n > 0
}

// isPKCS12 says whether text begins like a file of PKCS #12 (RFC 7292).
func isPKCS12(text []byte) bool {
	var pfx struct {
		Version  int
		AuthSafe asn1.RawValue
		MacData  asn1.RawValue `asn1:"optional"`
	}
	_, err := asn1.Unmarshal(text, &pfx)
	return err == nil && pfx.Version == 3
}

func checkRevoked(name string, text []byte, report func(name, format string, args ...any)) {
	n := 0
	for _, block := range blocks(text) {
		if block.Type != "X509 CRL" {
			report(name, "has a %.40q: a revocation list belongs here", block.Type)
			return
		}
		n++
		if _, err := x509.ParseRevocationList(block.Bytes); err != nil {
			report(name, "revocation list %d cannot be read: %v", n, err)
			return
		}
	}
	if n == 0 {
		report(name, "has no revocation list in PEM (-----BEGIN X509 CRL-----)")
	}
}

func blocks(text []byte) (out []*pem.Block) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return out
		}
		out, text = append(out, block), rest
	}
}

// Certificates describes the certificates among entries, in the order of the entries'
// names.
func Certificates(entries map[string][]byte) (out []Certificate) {
	for _, name := range Names(entries) {
		if !bytes.Contains(entries[name], []byte("-----BEGIN CERTIFICATE-----")) {
			continue
		}
		for _, block := range blocks(entries[name]) {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
				out = append(out, describe(name, c))
			}
		}
	}
	return out
}

func describe(entry string, c *x509.Certificate) Certificate {
	out := Certificate{
		Entry: entry, Subject: c.Subject.String(), Issuer: c.Issuer.String(), Serial: c.SerialNumber.Text(16),
		Names: append([]string(nil), c.DNSNames...), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), Authority: c.IsCA,
	}
	for _, ip := range c.IPAddresses {
		out.Names = append(out.Names, ip.String())
	}
	for _, uri := range c.URIs {
		out.Names = append(out.Names, uri.String())
	}
	return out
}
