package integration

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// forgedClientCert is what a client claims of itself in X-Forwarded-Client-Cert.
const forgedClientCert = "By=" + shopAccounts + "app;URI=" + shopAccounts + "admin"

// claimant is a program that calls the workload of a mesh.
type claimant struct {
	client *http.Client
	url    string
}

// shows returns what the application sees as X-Forwarded-Client-Cert of a caller that sends
// claim there; empty sends none.
func (c claimant) shows(ctx context.Context, claim string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return "", err
	}
	r.Host = "app.shop.test"
	if claim != "" {
		r.Header.Set("X-Forwarded-Client-Cert", claim)
	}
	got, err := answer(c.client, r)
	if err == nil && got.String() != "http" {
		err = fmt.Errorf("it answers %s", got)
	}
	return got.echo.Header.Get("X-Forwarded-Client-Cert"), err
}

// mutual returns a client without a sidecar that speaks the mesh's TLS itself, with a certificate.
func (n *namespace) mutual(t testing.TB, own *tls.Certificate, change func(*tls.Config)) *http.Client {
	client := n.http(t)
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"istio-http/1.1", "istio", "http/1.1"}, Certificates: []tls.Certificate{*own}}
	if change != nil {
		change(config)
	}
	client.Transport.(*http.Transport).DialTLSContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		plain, err := n.dial(ctx, address, 0)
		if err != nil {
			return nil, err
		}
		c := tls.Client(plain, config)
		if err := c.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			return nil, err
		}
		return c, nil
	}
	return client
}

// TestEnvoyForwardedClientCert: an application behind a sidecar sees in X-Forwarded-Client-Cert
// the certificate that its caller proved, and of what the caller wrote there what the mode lets
// through. A sidecar of the caller sends nothing that a program wrote.
func TestEnvoyForwardedClientCert(t *testing.T) {
	t.Parallel()
	of := securetest.New(t, "authority")
	own := of.Issue(t, securetest.Leaf{Identity: shopAccounts + "client", Names: []string{"client.shop.test"}, Subject: pkix.Name{CommonName: "client", Organization: []string{"shop"}}})
	files := of.Write(t, t.TempDir(), own)
	const uri = ";URI=" + shopAccounts + "client"
	by := fmt.Sprintf("By=%sapp;Hash=%x", shopAccounts, sha256.Sum256(own.Parsed.Raw))
	subject, dns := `;Subject="CN=client,O=shop"`, ";DNS=client.shop.test"
	usual, pem := by+subject+uri+dns, strings.ReplaceAll(url.QueryEscape(string(own.Cert)), "+", "%20")
	for headers, want := range map[string]struct {
		direct, plaintext string // what the application sees of callers that forge the header
		proved            string // and of one that does not, and has a certificate
	}{
		"{}":                                  {direct: forgedClientCert + "," + usual, proved: usual},
		"{forwardedClientCert: SANITIZE_SET}": {direct: usual, proved: usual},
		"{forwardedClientCert: SANITIZE_SET, setCurrentClientCertDetails: {subject: false, dns: false, cert: true}}": {
			direct: by + `;Cert="` + pem + `"` + uri, proved: by + `;Cert="` + pem + `"` + uri},
		"{forwardedClientCert: SANITIZE}":            {},
		"{forwardedClientCert: FORWARD_ONLY}":        {direct: forgedClientCert},
		"{forwardedClientCert: ALWAYS_FORWARD_ONLY}": {direct: forgedClientCert, plaintext: forgedClientCert},
	} {
		t.Run(headers, func(t *testing.T) {
			m := newPeerNetworks(t)
			m.of = of
			m.server = startServer(t, serverOptions{meshConfig: "defaultConfig: {proxyHeaders: " + headers + "}"})
			m.xds = startSocketRelay(t, m.server.xds)
			m.apply(peerEntry)
			in, out := m.sidecars(protocol.Delta, identified(t, of, shopAccounts+"app"), &certificateFiles{files.Cert, files.Key, files.CA})
			direct := claimant{m.client.mutual(t, securetest.TLS(own), nil), "https://10.0.0.1:8080/"}
			plaintext := claimant{m.client.http(t), "http://10.0.0.1:8080/"}
			sidecar := claimant{m.client.marked(t, captureMark), "http://10.9.0.1:80/"}
			for name, c := range map[string]struct {
				claimant
				claim, want string
			}{
				"a sidecar, nothing forged":     {sidecar, "", want.proved},
				"a sidecar, forged behind it":   {sidecar, forgedClientCert, want.proved},
				"mutual TLS, nothing forged":    {direct, "", want.proved},
				"mutual TLS, forged":            {direct, forgedClientCert, want.direct},
				"plaintext, nothing forged":     {plaintext, "", ""},
				"plaintext of a caller, forged": {plaintext, forgedClientCert, want.plaintext},
			} {
				eventually(t, name, func() error {
					got, err := c.shows(t.Context(), c.claim)
					if err == nil && got != c.want {
						err = fmt.Errorf("the application sees\n%q, want\n%q", got, c.want)
					}
					return err
				})
			}
			m.expectNothingRejected()
			in.expectNothingRejected()
			out.expectNothingRejected()
		})
	}
}
