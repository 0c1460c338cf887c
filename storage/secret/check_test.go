package secret_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	a, b := secrettest.New(t, time.Hour, "a.example"), secrettest.New(t, time.Hour, "b.example")
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	few, odd := secrettest.NewFor(t, weak, time.Hour, "few.example"), secrettest.NewFor(t, small, time.Hour, "odd.example")
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed := secrettest.NewFor(t, edwards, time.Hour, "ed.example")
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	old := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("x")})
	pfx := []byte{0x30, 5, 2, 1, 3, 0x30, 0} // version 3, and an empty content
	type entries map[string][]byte
	for name, c := range map[string]struct {
		kind    string
		entries entries
		want    []string // "entry: the beginning of the message"
	}{
		"a pair":                    {secret.TLS, entries{"tls.crt": a.Cert, "tls.key": a.Key}, nil},
		"a chain":                   {secret.TLS, entries{"tls.crt": append(bytes.Clone(a.Cert), b.Cert...), "tls.key": a.Key}, nil},
		"all of them":               {secret.TLS, entries{"tls.crt": a.Cert, "tls.key": a.Key, "ca.crt": b.Cert, "ca.crl": b.RevocationList(t)}, nil},
		"Istio's names":             {secret.Opaque, entries{"cert": a.Cert, "key": a.Key, "cacert": b.Cert, "crl": b.RevocationList(t)}, nil},
		"an authority alone":        {secret.Opaque, entries{"ca.crt": b.Cert}, nil},
		"anything":                  {secret.Opaque, entries{"password": []byte("x"), "a.b-C_9": nil}, nil},
		"names of other things":     {secret.Opaque, entries{"key": []byte("x"), "cacert": []byte("y")}, nil},
		"nothing":                   {secret.Opaque, nil, nil},
		"no pair":                   {secret.TLS, nil, []string{"tls.crt: is missing"}},
		"no key":                    {secret.TLS, entries{"tls.crt": a.Cert}, []string{"tls.key: is missing"}},
		"no certificate":            {secret.Opaque, entries{"key": a.Key}, []string{"cert: is missing"}},
		"another's key":             {secret.TLS, entries{"tls.crt": a.Cert, "tls.key": b.Key}, []string{"tls.key: is not the key of the first certificate in tls.crt"}},
		"the chain before":          {secret.TLS, entries{"tls.crt": append(bytes.Clone(b.Cert), a.Cert...), "tls.key": a.Key}, []string{"tls.key: is not the key of the first"}},
		"a passphrase":              {secret.TLS, entries{"tls.crt": a.Cert, "tls.key": encrypted}, []string{"tls.key: has a passphrase"}},
		"a passphrase, as of old":   {secret.TLS, entries{"tls.crt": a.Cert, "tls.key": old}, []string{"tls.key: has a passphrase"}},
		"swapped":                   {secret.TLS, entries{"tls.crt": a.Key, "tls.key": a.Cert}, []string{"tls.crt: has a private key", "tls.key: has a certificate"}},
		"two keys":                  {secret.TLS, entries{"tls.crt": a.Cert, "tls.key": append(bytes.Clone(a.Key), b.Key...)}, []string{"tls.key: has 2 private keys"}},
		"no PEM":                    {secret.TLS, entries{"tls.crt": []byte("x"), "tls.key": []byte("y")}, []string{"tls.crt: has no certificate in PEM", "tls.key: has no private key in PEM"}},
		"an empty file":             {secret.TLS, entries{"tls.crt": nil, "tls.key": a.Key}, []string{"tls.crt: has no certificate in PEM"}},
		"DER":                       {secret.TLS, entries{"tls.crt": a.Parsed.Raw, "tls.key": a.Key}, []string{"tls.crt: has no certificate in PEM (-----BEGIN CERTIFICATE-----), but one in DER"}},
		"PKCS #12":                  {secret.TLS, entries{"tls.crt": pfx, "tls.key": a.Key}, []string{"tls.crt: has no certificate in PEM (-----BEGIN CERTIFICATE-----), but is PKCS #12"}},
		"a cut certificate":         {secret.TLS, entries{"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Parsed.Raw[:50]}), "tls.key": a.Key}, []string{"tls.crt: certificate 1 cannot be read"}},
		"a key of another form":     {secret.TLS, entries{"tls.crt": a.Cert, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})}, []string{"tls.key: is a private key of an unknown form"}},
		"an authority that is none": {secret.Opaque, entries{"ca.crt": a.Key, "cacert": b.Key}, []string{"ca.crt: has a private key", "cacert: has a private key"}},
		"a list that is none":       {secret.Opaque, entries{"crl": a.Cert, "ca.crl": []byte("x")}, []string{"ca.crl: has no revocation list", `crl: has a "CERTIFICATE"`}},
		"names":                     {secret.Opaque, entries{"a b": nil, "..": nil, strings.Repeat("x", 254): nil}, []string{"..: a name has", "a b: a name has", strings.Repeat("x", 254) + ": a name has"}},
		"an RSA key of few bits":    {secret.TLS, entries{"tls.crt": few.Cert, "tls.key": few.Key}, []string{"tls.crt: is for an RSA key of 1024 bits"}},
		"an odd curve":              {secret.Opaque, entries{"cert": odd.Cert, "key": odd.Key}, []string{"cert: is for a key on the curve P-224"}},
		"an old authority":          {secret.Opaque, entries{"cacert": few.Cert}, nil},
		"Ed25519":                   {secret.TLS, entries{"tls.crt": ed.Cert, "tls.key": ed.Key}, nil},
		"10 MB":                     {secret.Opaque, entries{"x": make([]byte, 10<<20)}, []string{": has 10485760 bytes, and may have 1048576"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			secret.Check(c.kind, c.entries, func(name, format string, args ...any) {
				got = append(got, name+": "+fmt.Sprintf(format, args...))
			})
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			reported := map[string]bool{}
			for _, text := range got {
				for _, want := range c.want {
					if strings.HasPrefix(text, want) {
						reported[want] = true
					}
				}
				for _, key := range [][]byte{a.Key, b.Key} {
					if line := strings.Split(string(key), "\n")[1]; strings.Contains(text, line[:20]) {
						t.Errorf("%q has a part of a key", text)
					}
				}
			}
			if len(reported) != len(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	a, b := secrettest.New(t, time.Hour, "a.example", "www.a.example"), secrettest.New(t, 2*time.Hour, "b.example")
	got := secret.Certificates(map[string][]byte{"tls.crt": append(bytes.Clone(a.Cert), b.Cert...), "tls.key": a.Key, "other": []byte("x")})
	want := []secret.Certificate{
		{Entry: "tls.crt", Subject: "CN=a.example", Issuer: "CN=a.example", Serial: a.Parsed.SerialNumber.Text(16), Names: []string{"a.example", "www.a.example"}, NotBefore: a.Parsed.NotBefore, NotAfter: a.Parsed.NotAfter, Authority: true},
		{Entry: "tls.crt", Subject: "CN=b.example", Issuer: "CN=b.example", Serial: b.Parsed.SerialNumber.Text(16), Names: []string{"b.example"}, NotBefore: b.Parsed.NotBefore, NotAfter: b.Parsed.NotAfter, Authority: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		entries := map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": key, "crl": cert}
		secret.Check(secret.TLS, entries, func(string, string, ...any) {})
		_ = secret.Certificates(entries)
	})
}
