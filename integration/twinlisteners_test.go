package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyListenersOfOnePort: egress and ingress listeners of a Sidecar share a port at
// addresses of their own. Each carries its own hosts, by HTTP and TCP, and each has its own
// application. A change of one leaves the other alone.
func TestEnvoyListenersOfOnePort(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		web, bytes, in := freePort(t), freePort(t), freePort(t)
		entry := func(name string, u *upstream) string {
			return fill(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $web, name: http, protocol: HTTP}, {number: $bytes, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $to, tcp: $to}}]
`, "$name", name, "$web", web, "$bytes", bytes, "$to", u.port)
		}
		one, two, other := startUpstream(t, "one"), startUpstream(t, "two"), startUpstream(t, "other")
		s.apply(entry("one", one), entry("two", two), sidecarOf(fill(`
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
  egress:
  - {port: {number: $web, protocol: HTTP, name: a}, bind: 127.0.0.1, hosts: [./one.shop.test]}
  - {port: {number: $web, protocol: HTTP, name: b}, bind: 127.0.0.2, hosts: [./two.shop.test]}
  - {port: {number: $bytes, protocol: TCP, name: c}, bind: 127.0.0.1, hosts: [./one.shop.test]}
  - {port: {number: $bytes, protocol: TCP, name: d}, bind: 127.0.0.2, hosts: [./two.shop.test]}
  ingress:
  - {port: {number: $in, protocol: HTTP, name: e}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:$1one"}
  - {port: {number: $in, protocol: HTTP, name: f}, bind: 127.0.0.2, defaultEndpoint: "127.0.0.1:$1two"}
`, "$web", web, "$bytes", bytes, "$in", in, "$1one", one.port, "$1two", two.port)))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		get := func(address string, port int, host string) string {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/", address, port), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			got, err := answer(clientOf(t), r)
			if err != nil {
				return "-"
			}
			return got.String()
		}
		check := func(what string, wants map[string]string) {
			t.Helper()
			eventually(t, what, func() error {
				for at, want := range wants {
					var address, host string
					var port int
					if _, err := fmt.Sscan(at, &address, &port, &host); err != nil {
						t.Fatal(err)
					}
					if got := get(address, port, host); got != want {
						return fmt.Errorf("%s: %s, want %s", at, got, want)
					}
				}
				return nil
			})
		}
		at := func(address string, port int, host string) string {
			return fmt.Sprintf("%s %d %s", address, port, host)
		}
		const hostOne, hostTwo = "one.shop.test", "two.shop.test"
		check("each listener has its hosts", map[string]string{
			at("127.0.0.1", web, hostOne): "one", at("127.0.0.2", web, hostTwo): "two",
			at("127.0.0.1", web, hostTwo): "502", at("127.0.0.2", web, hostOne): "502",
			at("127.0.0.1", bytes, "any"): "one", at("127.0.0.2", bytes, "any"): "two",
			at("127.0.0.1", in, "any"): "one", at("127.0.0.2", in, "any"): "two",
		})
		s.awaitSynced(s.apply(entry("two", other), fill(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: two, namespace: shop}
spec: {hosts: [two.shop.test], http: [{match: [{uri: {prefix: /gone}}], directResponse: {status: 410}}, {route: [{destination: {host: two.shop.test, port: {number: $web}}}]}]}
`, "$web", web)), "client")
		check("changes come to one of them", map[string]string{at("127.0.0.1", web, hostOne): "one", at("127.0.0.2", web, hostTwo): "other"})
		for host, want := range map[string]string{hostOne: "one", hostTwo: "two"} {
			out := s.must("", "explain", "request", "--from", "client", "--to", fmt.Sprintf("%s:%d", host, web))
			if want == "two" {
				want = fmt.Sprint(other.port)
			} else {
				want = fmt.Sprint(one.port)
			}
			expectOutcome(t, host, outcome{stdout: out}, 0, "127.0.0.1:"+want, "it goes to the endpoints")
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}
