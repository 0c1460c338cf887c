package integration

import (
	"fmt"
	"strings"
	"testing"
)

// shopHost is the host of the service in most scenarios.
const shopHost = "reviews.shop.test"

// shop is a service with two versions behind a gateway and a sidecar.
type shop struct {
	gateway, service int // ports of 127.0.0.1
	v1, v2           *upstream
}

func newShop(t testing.TB) *shop {
	t.Helper()
	return &shop{gateway: freePort(t), service: freePort(t), v1: startUpstream(t, "v1"), v2: startUpstream(t, "v2")}
}

// all returns the objects of the shop. v1 and v2 are the shares of the versions in percent.
func (s *shop) all(v1, v2 int) string {
	return strings.Join([]string{s.entry(s.v1, s.v2), s.rule(), s.routes(v1, v2), s.door()}, "\n---\n")
}

// entry returns the ServiceEntry. The name of an upstream is the version of its endpoint.
func (s *shop) entry(endpoints ...*upstream) string {
	doc := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints:
`, "$host", shopHost, "$port", s.service)
	for _, u := range endpoints {
		doc += fmt.Sprintf("  - {address: 127.0.0.1, ports: {http: %d}, labels: {version: %s}}\n", u.port, u.name)
	}
	return doc
}

func (s *shop) rule() string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: $host
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
`, "$host", shopHost)
}

func (s *shop) routes(v1, v2 int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  gateways: [edge, mesh]
  http:
  - route:
    - {destination: {host: $host, subset: v1}, weight: $one}
    - {destination: {host: $host, subset: v2}, weight: $two}
`, "$host", shopHost, "$one", v1, "$two", v2)
}

func (s *shop) door() string { return edgeGateway(s.gateway, "*.shop.test") }

// edgeGateway is the Gateway of the proxy that startPair calls edge.
func edgeGateway(port int, hosts string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  selector: {app: edge}
  servers:
  - port: {number: $port, name: http, protocol: HTTP}
    bind: 127.0.0.1
    hosts: ["$hosts"]
`, "$port", port, "$hosts", hosts)
}

// atGateway and atSidecar are requests for the service.
func (s *shop) atGateway(path string) request {
	return request{port: s.gateway, host: shopHost, path: path}
}

func (s *shop) atSidecar(path string) request {
	return request{port: s.service, host: shopHost, path: path}
}
