package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// secureDoor is a Gateway with an HTTPS server for the shop, with TLS settings.
func secureDoor(port int, tls string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {app: edge}
  servers:
  - port: {number: $port, name: https, protocol: HTTPS}
    bind: 127.0.0.1
    hosts: ["*.shop.test"]
    tls: $tls
`, "$port", port, "$tls", tls)
}

// trusting returns the settings of a client that trusts a certificate.
func trusting(pair secrettest.Pair) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(pair.Parsed)
	return &tls.Config{RootCAs: roots}
}

// clientOverTLS returns a client of HTTP/1.1 and HTTP/2 over TLS. Each request uses a new
// connection to the port.
func clientOverTLS(t testing.TB, port int, config *tls.Config) *http.Client {
	t.Helper()
	client := clientOf(t)
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig, transport.ForceAttemptHTTP2, transport.DisableKeepAlives = config, true, true
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", local(port))
	}
	return client
}

// clientOverQUIC is clientOverTLS for HTTP/3.
func clientOverQUIC(t testing.TB, port int, config *tls.Config) *http.Client {
	t.Helper()
	transport := &http3.Transport{
		TLSClientConfig: config, QUICConfig: &quic.Config{HandshakeIdleTimeout: 2 * time.Second},
		Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, local(port), t, q)
		},
	}
	t.Cleanup(func() { _ = transport.Close() })
	return &http.Client{Transport: transport, Timeout: 5 * time.Second}
}

// TestEnvoyHTTP3: a gateway serves HTTP/3 beside HTTPS, and advertises it, as soon as its
// certificate is there. New connections of both get a new certificate.
func TestEnvoyHTTP3(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x, port := startServer(t, serverOptions{args: []string{"--http3"}}), newShop(t), freePort(t)
		s.apply(x.entry(x.v1, x.v2), x.rule(), x.routes(100, 0), secureDoor(port, "{mode: SIMPLE, credentialName: door}"))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		url := fmt.Sprintf("https://%s:%d/", shopHost, port)
		get := func(client *http.Client) (reply, string, error) {
			var used string
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			client.Transport = spy{client.Transport, &used}
			got, err := answer(client, r)
			return got, used, err
		}
		for range 2 {
			pair := secrettest.New(t, time.Hour, shopHost)
			s.awaitSynced(s.apply(tlsSecret("door", pair)), "edge")
			eventually(t, "HTTPS tells of HTTP/3", func() error {
				got, _, err := get(clientOverTLS(t, port, trusting(pair)))
				if err == nil && (got.echo.Upstream != "v1" || got.header.Get("alt-svc") != fmt.Sprintf(`h3=":%d"; ma=86400`, port)) {
					err = fmt.Errorf("%v %v", got, got.header)
				}
				return err
			})
			eventually(t, "HTTP/3 is spoken", func() error {
				got, used, err := get(clientOverQUIC(t, port, trusting(pair)))
				if err == nil && (got.echo.Upstream != "v1" || used != "HTTP/3.0") {
					err = fmt.Errorf("%v over %s", got, used)
				}
				return err
			})
		}
		if got, _, err := get(clientOverQUIC(t, port, trusting(secrettest.New(t, time.Hour, shopHost)))); err == nil {
			t.Errorf("a client that does not trust the certificate gets %v", got)
		}
		pair := secrettest.New(t, time.Hour, shopHost)
		s.awaitSynced(s.apply(tlsSecret("door", pair), x.routes(0, 100)), "edge")
		eventually(t, "routes are the same for both", func() error {
			for _, client := range []*http.Client{clientOverTLS(t, port, trusting(pair)), clientOverQUIC(t, port, trusting(pair))} {
				if got, _, err := get(client); err != nil || got.echo.Upstream != "v2" {
					return fmt.Errorf("%v, %v", got, err)
				}
			}
			return nil
		})

		// A server that requires client certificates is not open for QUIC.
		s.awaitSynced(s.apply(secureDoor(port, "{mode: MUTUAL, credentialName: door, caCertCredentialName: door-cacert}"),
			fill("apiVersion: v1\nkind: Secret\nmetadata: {name: door-cacert, namespace: shop}\nstringData:\n  ca.crt: $cert\n", "$cert", fmt.Sprintf("%q", pair.Cert))), "edge")
		eventually(t, "nobody comes in without a certificate", func() error {
			for name, client := range map[string]*http.Client{"TCP": clientOverTLS(t, port, trusting(pair)), "QUIC": clientOverQUIC(t, port, trusting(pair))} {
				if got, _, err := get(client); err == nil {
					return errors.New(name + ": " + got.String())
				}
			}
			return nil
		})
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// spy records the protocol of the last response.
type spy struct {
	http.RoundTripper
	protocol *string
}

// RoundTrip implements http.RoundTripper.
func (s spy) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		*s.protocol = response.Proto
	}
	return response, err
}
