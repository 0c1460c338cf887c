package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// Authority signs certificates for the length of a test.
type Authority struct {
	// File is the path of its own certificate, in PEM.
	File string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair names the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// NewAuthority returns an authority that nothing trusts yet.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.File = filepath.Join(a.dir, "ca.pem")
	writePEM(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue signs a certificate, for servers at hosts and for clients. name is its common
// name and names its files. Issue overwrites files of that name.
func (a *Authority) Issue(t testing.TB, name string, hosts ...string) Pair {
	t.Helper()
	leaf := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pair := Pair{Cert: filepath.Join(a.dir, name+".pem"), Key: filepath.Join(a.dir, name+"-key.pem")}
	writePEM(t, pair.Cert, "CERTIFICATE", der)
	writePEM(t, pair.Key, "EC PRIVATE KEY", secret)
	return pair
}

// Files returns the files of a client that has a certificate of the authority for the
// name.
func (a *Authority) Files(t testing.TB, name string) dial.Files {
	t.Helper()
	pair := a.Issue(t, name)
	return dial.Files{CA: a.File, Cert: pair.Cert, Key: pair.Key}
}

// TLS makes a server listen at a port of 127.0.0.1, 0 for any, with a certificate of the
// authority, and require one from its clients.
func (a *Authority) TLS(t testing.TB, port string) Adjust {
	t.Helper()
	pair := a.Issue(t, "etcd", "127.0.0.1")
	return func(c *embed.Config) {
		at := []url.URL{{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", port)}}
		c.ListenClientUrls, c.AdvertiseClientUrls = at, at
		c.ClientTLSInfo = transport.TLSInfo{
			CertFile: pair.Cert, KeyFile: pair.Key, TrustedCAFile: a.File, ClientCertAuth: true,
		}
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// writePEM replaces a file in one step, as tools that replace certificates should.
func writePEM(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	document := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(name+".new", document, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}
