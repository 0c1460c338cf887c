package xds_test

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// twoGateways share one proxy, and no port.
const twoGateways = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {selector: {app: gw}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: back, namespace: shop}
spec: {selector: {app: gw}, servers: [{port: {number: 8081, name: http, protocol: HTTP}, hosts: ["*"]}]}
`

const pooled = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews.shop.example, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}
`

const ingress = `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: shop, namespace: shop}
spec: {egress: [{bind: 127.0.0.2, port: {number: 9080, name: http, protocol: HTTP}, hosts: ["*/*"]}]}
`

const slow = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: slow, namespace: shop}
spec: {configPatches: [{applyTo: CLUSTER, match: {cluster: {service: reviews.shop.example}}, patch: {operation: MERGE, value: {connect_timeout: 7s}}}]}
`

const doorway = `apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: istio}
spec: {controller: istio.io/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec: {ingressClassName: istio, rules: [{host: web.example, http: {paths: [{pathType: Prefix, path: /, backend: {service: {name: reviews, port: {number: 9080}}}}]}}]}
`

const meshLog = `apiVersion: portolan.io/v1
kind: MeshConfig
metadata: {name: default, namespace: istio-system}
spec: {accessLogFile: /dev/stdout, accessLogFormat: "%NOSUCH%"}
`

// TestRefusedResourcesNameTheirObjects: resources without metadata, such as listeners, name
// the objects that they were built from. Resources with many origins name only those that
// the rejection can be about.
func TestRefusedResourcesNameTheirObjects(t *testing.T) {
	t.Parallel()
	tcp := strings.Replace(service("db", 5432, "10.1.0.9"), "protocol: HTTP", "protocol: TCP", 1)
	_, back, _ := strings.Cut(twoGateways, "---\n")
	gw := xdstest.NewNode("router", "10.0.0.9", "gw", "shop", map[string]string{"app": "gw"})
	door := xdstest.NewNode("router", "10.0.0.9", "door", "istio-system", map[string]string{"istio": "ingressgateway"})
	for _, c := range []struct {
		name    string
		node    *corev3.Node
		before  string // what the proxy has taken
		change  string
		typeURL string
		asks    []string
		guilty  string // what it refuses of the change, all where that is empty
		words   string
		want    []string
	}{
		{"the listener of a service", node("10.0.0.1"), service("reviews", 9080, "10.1.0.1"), tcp, xdstest.ListenerType, nil,
			"127.0.0.1_5432", "Error adding/updating listener(s) 127.0.0.1_5432: cannot bind", []string{"serviceentry/shop/db"}},
		{"the listener of a gateway", gw, service("reviews", 9080, "10.1.0.1"), twoGateways, xdstest.ListenerType, nil,
			"0.0.0.0_8081", "Error adding/updating listener(s) 0.0.0.0_8081: cannot bind '0.0.0.0:8081'", []string{"gateway/shop/back"}},
		{"the listener of a Sidecar", node("10.0.0.1"), service("reviews", 9080, "10.1.0.1"), ingress, xdstest.ListenerType, nil,
			"", "no good", []string{"sidecar/shop/shop"}}, // it is open for the port of the service, which was taken before
		{"a cluster without a rule", node("10.0.0.1"), service("reviews", 9080, "10.1.0.1"), tcp, xdstest.ClusterType, nil,
			"", "no good", []string{"serviceentry/shop/db"}},
		{"a cluster with a rule", node("10.0.0.1"), service("reviews", 9080, "10.1.0.1"), pooled, xdstest.ClusterType, nil,
			"", "no good", []string{"destinationrule/shop/reviews"}},
		{"a name within another", node("10.0.0.1"), service("reviews", 9080, "10.1.0.1"),
			service("a", 908, "10.1.0.2") + "---\n" + service("b", 90, "10.1.0.3"), xdstest.ListenerType, nil,
			"127.0.0.1_908", "listener 127.0.0.1_908: no good.", []string{"serviceentry/shop/a"}},
		{"a cluster that an EnvoyFilter patched", node("10.0.0.1"), service("reviews", 9080, "10.1.0.1"), slow, xdstest.ClusterType, nil,
			"", "no good", []string{"envoyfilter/shop/slow"}},
		{"a listener with a field of the mesh", gw, back, meshLog, xdstest.ListenerType, nil,
			"0.0.0.0_8081", "Error adding/updating listener(s) 0.0.0.0_8081: no such command", []string{"meshconfig/istio-system/default"}},
		{"a listener without a field of the mesh", gw, meshLog, back, xdstest.ListenerType, nil,
			"0.0.0.0_8081", "Error adding/updating listener(s) 0.0.0.0_8081: cannot bind", []string{"gateway/shop/back"}},
		{"endpoints", node("10.0.0.1"), service("reviews", 9080, "10.1.0.1"), service("reviews", 9080, "10.1.0.2"), xdstest.EndpointType,
			[]string{"outbound|9080||reviews.shop.example"}, "", "malformed IP address", []string{"serviceentry/shop/reviews"}},
		{"the listener of an Ingress", door, service("reviews", 9080, "10.1.0.1"), doorway, xdstest.ListenerType, nil,
			"", "no good", []string{"ingress/shop/web"}},
		{"the routes of an Ingress", door, service("reviews", 9080, "10.1.0.1") + "---\n" + doorway, strings.ReplaceAll(doorway, "path: /", "path: /a"), xdstest.RouteType,
			[]string{"http.80"}, "", "no good", []string{"ingress/shop/web"}},
		{"one of the routes of a table", node("10.0.0.1"),
			strings.Join([]string{service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.2"), route("reviews", "reviews"), route("ratings", "ratings")}, "---\n"),
			route("ratings", "reviews"), xdstest.RouteType, []string{"9080"}, "", "no good", []string{"virtualservice/shop/ratings"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			variants(t, func(t *testing.T, v protocol.Variant) {
				s := xdstest.NewServer(t, catalogue.Types())
				published(t, s, s.Apply(c.before))
				refuse := refusing(c.guilty, c.words)
				taken := make(chan struct{}) // the first
				p := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: c.node, Variant: v, Refuse: func(a *xdstest.Answer) string {
					select {
					case <-taken:
					default:
						close(taken)
						return ""
					}
					if c.guilty == "" {
						return c.words
					}
					return refuse(a)
				}})
				p.Subscribe(c.typeURL, c.asks...)
				<-taken
				s.Apply(c.change)
				var objects []string
				xdstest.Eventually(t, "the refusal is known", func() bool {
					for _, proxy := range s.XDS.Proxies() {
						for _, one := range proxy.Types {
							if one.RejectedNonce != "" {
								objects = one.Objects
								return true
							}
						}
					}
					return false
				})
				if !slices.Equal(objects, c.want) {
					t.Errorf("objects %v, want %v", objects, c.want)
				}
			})
		})
	}
}
