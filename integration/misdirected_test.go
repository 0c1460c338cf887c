package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyMisdirectedRequest: a browser reuses a connection for every host of its
// certificate. A gateway answers such a request for the host of another TLS server with 421,
// over HTTP/2 and HTTP/3. The server with a wildcard does not get it, though it covers the
// host.
func TestEnvoyMisdirectedRequest(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{args: []string{"--http3"}}), freePort(t)
		pair := secrettest.New(t, time.Hour, "*.shop.test")
		const simple = "mode: SIMPLE, credentialName: door"
		pattern := fmt.Sprintf("\n  - {port: {number: %d, name: any, protocol: HTTPS}, bind: 127.0.0.1, hosts: ['*.shop.test'], tls: {%s}}", port, simple)
		routes := "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: any, namespace: shop}\nspec: {hosts: ['*.shop.test'], gateways: [any], http: [{directResponse: {status: 200, body: {string: any}}}]}\n"
		s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		try := func(client *http.Client, connect, host, want string) error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s.shop.test:%d/", connect, port), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = fmt.Sprintf("%s:%d", host, port)
			got, err := answer(client, r)
			if text := fmt.Sprint(got.status, " ", got.body); err == nil && text != want {
				err = fmt.Errorf("on the connection for %s, %s gets %s, want %s", connect, host, text, want)
			}
			return err
		}
		overTLS := func() *http.Client { return clientOverTLS(t, port, trusting(pair)) }
		overQUIC := func() *http.Client { return clientOverQUIC(t, port, trusting(pair)) }
		type request struct{ connect, host, want string }
		check := func(requests ...request) {
			t.Helper()
			for _, r := range requests {
				eventually(t, "HTTP/2", func() error { return try(overTLS(), r.connect, r.host, r.want) })
				eventually(t, "HTTP/3", func() error { return try(overQUIC(), r.connect, r.host, r.want) })
			}
		}

		s.awaitSynced(s.apply(tlsSecret("door", pair), tlsGateway("two", httpsServer(port, "a", simple), httpsServer(port, "b", simple)), tlsAnswer("two", "a"), tlsAnswer("two", "b")), "edge")
		check(
			request{"a", "a.shop.test", "200 a"},
			request{"a", "b.shop.test", "421 "},
			request{"b", "a.shop.test", "421 "},
			request{"b", "B.shop.test", "200 b"},
			request{"a", "nobody.shop.test", "404 "},
		)
		s.awaitSynced(s.apply(tlsGateway("any", pattern), routes), "edge")
		check(
			request{"other", "other.shop.test", "200 any"},
			request{"other", "a.shop.test", "421 "},
			request{"a", "other.shop.test", "421 "},
			request{"a", "a.shop.test", "200 a"},
		)
	})
}
