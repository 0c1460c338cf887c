// Package securetest makes certificate authorities, and certificates of servers, workloads and
// people, for tests.
package securetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// Authority signs certificates.
type Authority struct{ secrettest.Pair }

// New makes an authority that is valid for a day.
func New(tb testing.TB, name string) *Authority {
	tb.Helper()
	return &Authority{secrettest.New(tb, 24*time.Hour, name)}
}

// Pool returns a pool with this authority only.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Parsed)
	return pool
}

// Leaf describes a certificate to issue. The zero Leaf is for clients and servers, names
// nobody, and is valid for a day from an hour ago.
type Leaf struct {
	Identity string // a URI
	Names    []string
	IPs      []string
	Subject  pkix.Name
	From     time.Time
	Until    time.Time
	Usages   []x509.ExtKeyUsage
}

// Issue makes a certificate.
func (a *Authority) Issue(tb testing.TB, l Leaf) secrettest.Pair {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	if l.From.IsZero() {
		l.From = time.Now().Add(-time.Hour)
	}
	if l.Until.IsZero() {
		l.Until = time.Now().Add(24 * time.Hour)
	}
	if l.Usages == nil {
		l.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: l.Subject, DNSNames: l.Names, NotBefore: l.From, NotAfter: l.Until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.Usages,
	}
	for _, ip := range l.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	if l.Identity != "" {
		u, err := url.Parse(l.Identity)
		if err != nil {
			tb.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Parsed, key.Public(), a.Private)
	if err != nil {
		tb.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return secrettest.Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		Parsed: parsed, Private: key,
	}
}

// TLS converts a pair for crypto/tls.
func TLS(p secrettest.Pair) *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Parsed.Raw}, PrivateKey: p.Private, Leaf: p.Parsed}
}

// Files holds the paths of a certificate, its key and its authority, and their directory.
type Files struct{ Dir, Cert, Key, CA string }

// Write writes a pair and the authority to files in a directory. It replaces each file
// atomically, as programs that renew certificates do.
func (a *Authority) Write(tb testing.TB, dir string, p secrettest.Pair) Files {
	tb.Helper()
	f := Files{dir, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	for _, file := range []struct {
		path    string
		content []byte
	}{{f.Key, p.Key}, {f.Cert, p.Cert}, {f.CA, a.Cert}} {
		if err := os.WriteFile(file.path+".new", file.content, 0o600); err != nil {
			tb.Fatal(err)
		}
		if err := os.Rename(file.path+".new", file.path); err != nil {
			tb.Fatal(err)
		}
	}
	return f
}
