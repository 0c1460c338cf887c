package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// authority issues certificates.
type authority struct {
	t    testing.TB
	pair secrettest.Pair
}

func newAuthority(t testing.TB, name string) *authority {
	return &authority{t, secrettest.New(t, 24*time.Hour, name)}
}

// issue returns a certificate for some DNS names and SPIFFE ids, for servers and clients. The
// first is also its common name. It is valid for a time, which may be negative.
func (a *authority) issue(valid time.Duration, names ...string) secrettest.Pair {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if id, err := url.Parse(name); err == nil && id.Scheme == "spiffe" {
			template.URIs = append(template.URIs, id)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.pair.Parsed, key.Public(), a.pair.Private)
	if err != nil {
		a.t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return secrettest.Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		Parsed: parsed, Private: key,
	}
}

// revokes returns a list of revoked certificates, in PEM.
func (a *authority) revokes(all ...secrettest.Pair) []byte {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, p := range all {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: p.Parsed.SerialNumber, RevocationTime: time.Now().Add(-time.Minute),
		})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.pair.Parsed, a.pair.Private)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// tlsCall is a request over TLS to a port of 127.0.0.1.
type tlsCall struct {
	port int
	name string // the SNI, and the host of the request; empty sends no SNI
	// of issued the server's certificate; nil does not verify it.
	of *authority
	// client is the certificate of the client, nil for none.
	client   *secrettest.Pair
	min, max uint16 // TLS versions
	http1    bool   // the client speaks no HTTP/2
}

func (c tlsCall) config() *tls.Config {
	out := &tls.Config{ServerName: c.name, MinVersion: max(c.min, tls.VersionTLS12), MaxVersion: c.max}
	if c.of == nil {
		out.InsecureSkipVerify = true
	} else {
		out.RootCAs = x509.NewCertPool()
		out.RootCAs.AddCert(c.of.pair.Parsed)
	}
	if c.client != nil {
		own := tls.Certificate{Certificate: [][]byte{c.client.Parsed.Raw}, PrivateKey: c.client.Private}
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	return out
}

// tlsReply is the response, and what the handshake negotiated.
type tlsReply struct {
	body, proto string
	status      int
	version     uint16
	leaf        *x509.Certificate
}

// get sends the request on a new connection.
func (c tlsCall) get(ctx context.Context) (tlsReply, error) {
	transport := &http.Transport{TLSClientConfig: c.config(), ForceAttemptHTTP2: !c.http1, DisableKeepAlives: c.http1}
	defer transport.CloseIdleConnections()
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", local(c.port))
	}
	host := c.name
	if host == "" {
		host = "127.0.0.1" // clients send no address as SNI
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s:%d/", host, c.port), nil)
	if err != nil {
		return tlsReply{}, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return tlsReply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return tlsReply{
		body: string(body), proto: response.Proto, status: response.StatusCode,
		version: response.TLS.Version, leaf: response.TLS.PeerCertificates[0],
	}, err
}

// refusal does a handshake and returns the server's alert, nil if the server waits for a
// request. It sends nothing that could cross the alert.
func (c tlsCall) refusal(ctx context.Context) error {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", local(c.port))
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	config := c.config()
	config.NextProtos = []string{"http/1.1"}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		return nil
	}
	return err
}

// awaitTLSReply waits until the answer to a request over TLS is a text.
func awaitTLSReply(t testing.TB, c tlsCall, want string) tlsReply {
	t.Helper()
	var out tlsReply
	eventually(t, fmt.Sprintf("https://%s:%d answers %s", c.name, c.port, want), func() (err error) {
		if out, err = c.get(t.Context()); err == nil && out.body != want {
			err = fmt.Errorf("it answers %d %q", out.status, out.body)
		}
		return err
	})
	return out
}
