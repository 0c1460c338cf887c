package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/portolan-mesh/portolan/discovery/identity"
)

// mutual is the authority of a cell over mutual TLS. The files of a directory have what a
// server needs of it. Certificates of proxies are only in memory.
type mutual struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// trustDomain is the trust domain of the mesh, Portolan's default.
const trustDomain = "cluster.local"

// The files of a server's directory.
const certFile, keyFile, rootFile = "cert.pem", "key.pem", "root.pem"

// newMutual makes an authority, and a certificate for servers on this machine.
func newMutual(dir string) (*mutual, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	m := &mutual{dir: dir}
	root := &x509.Certificate{
		Subject: pkix.Name{CommonName: "load"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	made, err := m.sign(root)
	if err != nil {
		return nil, err
	}
	m.certificate, m.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	server, err := m.sign(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	return m, errors.Join(err,
		m.write(certFile, "CERTIFICATE", server.Certificate[0]),
		m.write(keyFile, "PRIVATE KEY", key),
		m.write(rootFile, "CERTIFICATE", m.certificate.Raw))
}

func (m *mutual) write(file, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(m.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// sign issues a certificate with a key of its own. The first one signs itself.
func (m *mutual) sign(template *x509.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := m.certificate, m.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// flags returns the flags that make Portolan serve xDS over mutual TLS.
func (m *mutual) flags() []string {
	file := func(name string) string { return filepath.Join(m.dir, name) }
	return []string{
		"--secure-xds-address", "127.0.0.1:0", "--tls-cert", file(certFile), "--tls-key", file(keyFile), "--client-ca", file(rootFile),
	}
}

// proxies returns the TLS settings of n proxies. Each has its own certificate, for the service
// account of its name in the namespace of its node. They are issued now, so that no measurement
// includes it.
func (m *mutual) proxies(n int, node func(int) *corev3.Node) (func(int) *tls.Config, error) {
	roots := x509.NewCertPool()
	roots.AddCert(m.certificate)
	all := make([]*tls.Config, n)
	for i := range all {
		namespace := node(i).GetMetadata().GetFields()["NAMESPACE"].GetStringValue()
		who, err := identity.New(trustDomain, namespace, fmt.Sprintf("proxy-%d", i))
		if err != nil {
			return nil, err
		}
		own, err := m.sign(&x509.Certificate{
			URIs: []*url.URL{who.URL()}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			return nil, err
		}
		all[i] = &tls.Config{Certificates: []tls.Certificate{*own}, RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return func(i int) *tls.Config { return all[i] }, nil
}

// serverTLS returns the settings of a floor server over mutual TLS, from the files of a
// directory.
func serverTLS(dir string) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, err
	}
	root, err := os.ReadFile(filepath.Join(dir, rootFile))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(root) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(dir, rootFile))
	}
	return &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
	}, nil
}
