package authority_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/discovery/identity/authority/authoritytest"
)

func extension(t testing.TB, id int, value any) pkix.Extension {
	t.Helper()
	der, err := asn1.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, id}, Value: der}
}

func uriName(text string) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(text)}
}

// TestParseRequest: a request that is not for a workload is refused, whoever sends it.
func TestParseRequest(t *testing.T) {
	t.Parallel()
	key := authoritytest.Key(t)
	requestOf := func(template x509.CertificateRequest) []byte { return authoritytest.Request(t, key, &template) }
	with := func(extensions ...pkix.Extension) []byte {
		return requestOf(x509.CertificateRequest{ExtraExtensions: extensions})
	}
	rsaOf := func(bits int) crypto.Signer {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	curve := func(c elliptic.Curve) crypto.Signer {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plain := authoritytest.CSR(t, key)
	forged := bytes.Clone(plain)
	if block, _ := pem.Decode(plain); true {
		block.Bytes[len(block.Bytes)-1] ^= 1
		forged = pem.EncodeToMemory(block)
	}
	ca := struct{ IsCA bool }{true}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"without a name":         {plain, ""},
		"with its identity":      {authoritytest.CSR(t, key, web.String()), ""},
		"with a subject":         {requestOf(x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{"admins"}}}), ""},
		"RSA":                    {authoritytest.CSR(t, rsaOf(2048)), ""},
		"P-384":                  {authoritytest.CSR(t, curve(elliptic.P384())), ""},
		"no authority":           {with(extension(t, 19, struct{}{})), ""},
		"a DNS name":             {requestOf(x509.CertificateRequest{DNSNames: []string{"shop.example"}}), "no URI"},
		"an address":             {requestOf(x509.CertificateRequest{IPAddresses: []net.IP{{10, 0, 0, 1}}}), "no URI"},
		"a mail address":         {requestOf(x509.CertificateRequest{EmailAddresses: []string{"a@b.example"}}), "no URI"},
		"another kind of name":   {with(extension(t, 17, []asn1.RawValue{{Class: 2, Tag: 0, IsCompound: true, Bytes: []byte{6, 1, 42, 160, 2, 12, 0}}})), "no URI"},
		"two names":              {requestOf(x509.CertificateRequest{URIs: []*url.URL{web.URL(), web.URL()}}), "has 2 names"},
		"one and a DNS name":     {requestOf(x509.CertificateRequest{URIs: []*url.URL{web.URL()}, DNSNames: []string{"x"}}), "has 2 names"},
		"names twice":            {with(extension(t, 17, []asn1.RawValue{uriName(web.String())}), extension(t, 17, []asn1.RawValue{uriName("spiffe://cluster.local/ns/a/sa/b")})), ""},
		"the CA bit":             {with(extension(t, 19, ca)), "for an authority"},
		"odd constraints":        {with(pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{1, 2, 3}}), "for an authority"},
		"to sign certificates":   {with(extension(t, 15, asn1.BitString{Bytes: []byte{0x04}, BitLength: 6})), "asks to sign"},
		"a weak RSA key":         {authoritytest.CSR(t, rsaOf(1024)), "RSA key of 1024 bits"},
		"an odd curve":           {authoritytest.CSR(t, curve(elliptic.P224())), "curve"},
		"Ed25519":                {authoritytest.CSR(t, edwards), "use ECDSA or RSA"},
		"signed by another":      {forged, "not signed by its key"},
		"a megabyte":             {bytes.Repeat([]byte("A"), 1<<20), "may have 65536"},
		"garbage":                {[]byte("hello"), "no certificate request in PEM"},
		"nothing":                {nil, "no certificate request in PEM"},
		"a certificate":          {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), "no certificate request in PEM"},
		"garbage in PEM":         {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte{1}}), "cannot be read"},
		"two":                    {append(bytes.Clone(plain), plain...), "text around"},
		"text before":            {append([]byte("x\n"), plain...), "text around"},
		"a foreign identity":     {authoritytest.CSR(t, key, "spiffe://cluster.local/ns/shop/sa/admin"), "is for"},
		"a foreign trust domain": {authoritytest.CSR(t, key, "spiffe://other/ns/shop/sa/web"), "is for"},
	} {
		r, err := authority.ParseRequest(c.text)
		if err == nil {
			err = r.For(web)
		}
		if name == "names twice" { // Go itself refuses the second
			if err == nil {
				t.Errorf("%s: taken", name)
			}
			continue
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzParseRequest: no request leads to a certificate with another name, or for an authority.
func FuzzParseRequest(f *testing.F) {
	key := authoritytest.Key(f)
	for _, seed := range [][]byte{authoritytest.CSR(f, key), authoritytest.CSR(f, key, web.String()), authoritytest.Request(f, key, &x509.CertificateRequest{DNSNames: []string{"a"}})} {
		block, _ := pem.Decode(seed)
		f.Add(block.Bytes, true)
		f.Add(seed, false)
	}
	a := authoritytest.Start(f).Server(f)
	f.Fuzz(func(t *testing.T, text []byte, der bool) {
		if der {
			text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: text})
		}
		r, err := authority.ParseRequest(text)
		if err != nil {
			return
		}
		signed, err := a.Sign(t.Context(), r, web, 0)
		if err != nil {
			return
		}
		if who, err := a.Verify([]*x509.Certificate{signed.Leaf}); err != nil || who != web || signed.Leaf.IsCA || len(signed.Leaf.DNSNames) > 0 {
			t.Fatalf("%v, %v", who, err)
		}
	})
}
