package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// The objects of the tests, in namespace default.
const (
	entry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web}
spec:
  hosts: [web.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, labels: {version: v1}}]
`
	plugin = `
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: plugin, namespace: default}
spec: {url: file:///p.wasm, sha256: ec757060a4717f079363f6d1c96e04a83793174806fc5db3a230e6ab83c28fbb, imagePullSecret: a}
`
	dynamic = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: dynamic}
spec: {hosts: ["*.example.org"], ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL}
`
	private = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: private, namespace: other}
spec:
  hosts: [private.example.com]
  exportTo: ["."]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.2}]
`
)

// streamEntry is a service with one port.
func streamEntry(name, protocol string) string {
	return xdstest.Object("ServiceEntry", name, fmt.Sprintf("{hosts: [%s.example.com], ports: [{number: 80, name: p, protocol: %s}], resolution: STATIC, addresses: [10.9.0.%d], endpoints: [{address: 10.0.0.9}]}", name, protocol, len(name)))
}

// headless is a service with one port, whose workloads have the label x.
func headless(name, port, protocol string) string {
	return xdstest.Object("ServiceEntry", name, fmt.Sprintf("{hosts: [%s.example.com], location: MESH_INTERNAL, ports: [{number: %s, name: p, protocol: %s}], resolution: NONE, workloadSelector: {labels: {app: x}}}", name, port, protocol))
}

func routes(name, spec string) string { return xdstest.Object("VirtualService", name, spec) }

func rule(name, spec string) string { return xdstest.Object("DestinationRule", name, spec) }

func gateway(name, spec string) string { return xdstest.Object("Gateway", name, spec) }

func hostGrant(name, spec string) string { return xdstest.Object("HostGrant", name, spec) }

func sidecar(name, spec string) string { return xdstest.Object("Sidecar", name, spec) }

// toIt is a route to the service of entry.
const toIt = "{route: [{destination: {host: web.example.com}}]}"

// root is the VirtualService v with some routes, and part one without hosts.
func root(http string) string { return routes("v", "{hosts: [web.example.com], http: ["+http+"]}") }

func part(name, http string) string { return routes(name, "{http: ["+http+"]}") }

const (
	edge   = `{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*.example.com"]}]}`
	toWeb  = `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com}}]}]}`
	viaWeb = `{hosts: [web.example.com], gateways: [edge], http: [{route: [{destination: {host: web.example.com}}]}]}`
)

// proxies returns known proxies by node.
func proxies(all ...*status.Proxy) pmap.Map[*status.Proxy] {
	var out pmap.Map[*status.Proxy]
	for _, p := range all {
		out = out.Set(p.Node, p)
	}
	return out
}

func router(labels map[string]string) *status.Proxy {
	return &status.Proxy{Node: "router", Type: "router", Namespace: "default", Addresses: []string{"10.1.0.1"}, Labels: labels, Replica: "r"}
}

func atAddress(node, address, replica string) *status.Proxy {
	return &status.Proxy{Node: node, Type: "sidecar", Namespace: "default", Addresses: []string{address}, Labels: map[string]string{"app": "web"}, Replica: replica}
}

// placed is a sidecar that captures traffic and has a locality.
func placed(node, address, locality string) *status.Proxy {
	p := atAddress(node, address, "r")
	p.Interception, p.Locality = "REDIRECT", locality
	return p
}

// bystander is a sidecar that captures no traffic.
func bystander(namespace string) *status.Proxy {
	p := placed("by", "10.0.0.9", "eu")
	p.Namespace, p.Interception = namespace, "NONE"
	return p
}

// near is a rule that prefers localities.
func near(setting string) string {
	return "{host: web.example.com, trafficPolicy: {outlierDetection: {}, loadBalancer: {localityLbSetting: {" + setting + "}}}}"
}

const nearField = "spec.trafficPolicy.loadBalancer.localityLbSetting"

// client is a proxyless gRPC client.
func client(namespace string) *status.Proxy {
	return &status.Proxy{Node: "client", Type: "grpc", Namespace: namespace, Addresses: []string{"10.1.0.9"}, Replica: "r"}
}

// odd has fields that proxyless gRPC clients ignore.
var odd = routes("v", `{hosts: [web.example.com], http: [
	{match: [{uri: {exact: /a}}], route: [{destination: {host: web.example.com}, headers: {request: {remove: [x]}}}], rewrite: {uri: /b}, timeout: 1s,
	 retries: {attempts: 2, perTryTimeout: 1s}, mirror: {host: web.example.com}, corsPolicy: {allowOrigins: [{exact: "*"}]}},
	{redirect: {uri: /x}}]}`)

// said returns the verdicts of an index, each after the name of its object.
func said(x *index.Index) []string {
	out := []string{}
	for l := range x.Lists() {
		for _, v := range l.Verdicts {
			text := fmt.Sprintf("%s %s %s", l.Of.Name, v.Code, v.Field)
			if v.Other.Name != "" {
				text += " beside " + v.Other.Name
			}
			out = append(out, text)
		}
	}
	return out
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	gone := atAddress("edge", "10.0.0.1", "")
	gone.Type = "router"
	running := *gone
	running.Replica = "r"
	known := proxies(router(map[string]string{"app": "edge"}), atAddress("w", "10.0.0.1", "r"))
	for _, tc := range []struct {
		name    string
		objects []string
		proxies pmap.Map[*status.Proxy]
		want    []string
	}{
		{name: "nothing odd", objects: []string{entry, routes("v", toWeb), gateway("edge", edge), routes("g", viaWeb)}},
		{
			name: "tcp and tls routes",
			objects: []string{entry, streamEntry("db", "TCP"), streamEntry("vault", "TLS"), routes("v", `{hosts: [db.example.com, vault.example.com],
				tcp: [{route: [{destination: {host: web.example.com}}]}], tls: [{match: [{sniHosts: [vault.example.com]}], route: [{destination: {host: web.example.com}}]}]}`)},
		},
		{
			name: "destinations of tcp and tls routes",
			objects: []string{entry, streamEntry("db", "TCP"), streamEntry("vault", "TLS"), routes("v", `{hosts: [db.example.com, vault.example.com],
				tcp: [{route: [{destination: {host: nobody.example.com}, weight: 1}, {destination: {host: web.example.com, port: {number: 81}}, weight: 1}]}],
				tls: [{match: [{sniHosts: [vault.example.com]}], route: [{destination: {host: web.example.com, subset: v9}}]}]}`)},
			want: []string{
				"v PTL0101 spec.tcp[0].route[0].destination.host", "v PTL0110 spec.tcp[0].route[1].destination.port.number",
				"v PTL0102 spec.tls[0].route[0].destination.subset",
			},
		},
		{
			name:    "a delegate and its root",
			objects: []string{entry, root("{match: [{uri: {prefix: /a}}], delegate: {name: d}}, {delegate: {name: far, namespace: other}, mirror: {host: web.example.com}}"), part("d", toIt), part("other/far", toIt)},
		},
		{
			name: "delegates that are not there, have hosts, or are not exported",
			objects: []string{entry, root("{match: [{port: 1}], delegate: {name: none}}, {match: [{port: 2}], delegate: {name: far}}, {match: [{port: 3}], delegate: {name: v}}, {delegate: {name: far, namespace: other}}"),
				routes("other/far", "{exportTo: [.], http: ["+toIt+"]}")},
			want: []string{"v PTL0141 spec.http[0].delegate", "v PTL0141 spec.http[1].delegate", "v PTL0143 spec.http[2].delegate beside v", "v PTL0142 spec.http[3].delegate beside far", "v PTL0153 spec.http[0].match[0].port", "v PTL0153 spec.http[1].match[0].port", "v PTL0153 spec.http[2].match[0].port"},
		},
		{
			name:    "a delegate without a root",
			objects: []string{entry, part("d", "{route: [{destination: {host: nobody.example.com}}]}")},
			want:    []string{"d PTL0145 spec.hosts"},
		},
		{
			name: "a delegate whose matches its root excludes",
			objects: []string{entry, root("{match: [{uri: {prefix: /a}}, {uri: {exact: /b}}], delegate: {name: d}}"),
				part("d", "{match: [{uri: {prefix: /a}}, {uri: {prefix: /}}], route: [{destination: {host: nobody.example.com}}]}, {match: [{headers: {x: {}}}], "+toIt[1:])},
			want: []string{"d PTL0144 spec.http[0].match[1].uri beside v"},
		},
		{
			name: "destinations of a delegate, and mirrors of its root",
			objects: []string{entry, private, root("{delegate: {name: d}, mirror: {host: nobody.example.com}}"),
				part("d", "{match: [{port: 80}], route: [{destination: {host: web.example.com, subset: v9}}]}, {route: [{destination: {host: private.example.com}}]}")},
			want: []string{"d PTL0102 spec.http[0].route[0].destination.subset", "d PTL0125 spec.http[1].route[0].destination.host", "v PTL0101 spec.http[0].mirror.host"},
		},
		{
			name: "routes behind a delegate that takes every request",
			objects: []string{entry, root("{match: [{port: 80}], delegate: {name: d}}, {match: [{uri: {prefix: /}}], delegate: {name: d}}, {match: [{port: 81}], " + toIt[1:] + ", " + toIt),
				part("d", toIt+", "+toIt)},
			want: []string{"d PTL0113 spec.http[1]", "v PTL0113 spec.http[2] beside d", "v PTL0153 spec.http[2].match[0].port"},
		},
		{
			name:    "a delegate for another gateway",
			objects: []string{entry, root("{delegate: {name: d}}"), part("d", "{match: [{gateways: [edge]}, {gateways: [edge, mesh]}], "+toIt[1:])},
			want:    []string{"d PTL0146 spec.http[0].match[0].gateways beside v"},
		},
		{
			name: "a delegate that gRPC clients do not take", proxies: proxies(client("default")),
			objects: []string{strings.Replace(entry, "protocol: HTTP", "protocol: GRPC", 1), root("{delegate: {name: d}, corsPolicy: {allowOrigins: [{exact: '*'}]}}"), part("d", "{rewrite: {uri: /x}, "+toIt[1:])},
			want:    []string{"d PTL0133 spec.http[0].rewrite", "v PTL0133 spec.http[0].corsPolicy"},
		},
		{
			name: "tcp routes of two VirtualServices",
			objects: []string{entry, streamEntry("db", "TCP"), streamEntry("db2", "TCP"),
				routes("z", `{hosts: ["*.example.com"], tcp: [{match: [{destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: web.example.com}}]}, {match: [{}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("v", `{hosts: [db.example.com], tcp: [{route: [{destination: {host: web.example.com}}]}]}`),
				routes("some", `{hosts: [nobody.example.com], http: [{route: [{destination: {host: web.example.com}}]}], exportTo: ["~"]}`)},
			want: []string{"some PTL0123 spec.hosts[0]", "v PTL0135 spec.hosts[0] beside z"},
		},
		{
			name: "names that have a route",
			objects: []string{entry, streamEntry("vault", "TLS"), streamEntry("safe", "HTTPS"),
				routes("z", `{hosts: ["*.example.com"], tls: [{match: [{sniHosts: [vault.example.com], sourceLabels: {app: web}}, {sniHosts: [safe.example.com]}, {sniHosts: [vault.example.com, safe.example.com]}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("v", `{hosts: [vault.example.com, safe.example.com], tls: [{match: [{sniHosts: [safe.example.com], destinationSubnets: [10.0.0.0/8]}, {sniHosts: [safe.example.com, vault.example.com]}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{
				"v PTL0136 spec.tls[0].match[1].sniHosts[0] beside z", "v PTL0136 spec.tls[0].match[1].sniHosts[1] beside z",
				"z PTL0136 spec.tls[0].match[2].sniHosts[1]",
			},
		},
		{
			name: "http routes for a port without HTTP, and for one that may speak it",
			objects: []string{
				streamEntry("db", "TCP"), routes("v", "{hosts: [db.example.com], http: [{route: [{destination: {host: db.example.com}}]}]}"),
				xdstest.Object("ServiceEntry", "any", "{hosts: [any.example.com], addresses: [10.9.0.77], ports: [{number: 70, name: a}], resolution: STATIC, endpoints: [{address: 10.1.0.1}]}"),
				routes("w", "{hosts: [any.example.com], http: [{route: [{destination: {host: any.example.com}}]}]}"),
			},
			want: []string{"any PTL0128 spec.ports[0].protocol", "v PTL0137 spec.http"},
		},
		{
			name: "settings of HTTP for a port without it",
			objects: []string{streamEntry("db", "TCP"), rule("r", `{host: db.example.com, trafficPolicy: {connectionPool: {http: {http1MaxPendingRequests: 7}}, loadBalancer: {consistentHash: {httpHeaderName: x}}},
				subsets: [{name: a, trafficPolicy: {connectionPool: {http: {maxRetries: 3}}}}]}`)},
			want: []string{"r PTL0128 spec.subsets[0].trafficPolicy.connectionPool.http", "r PTL0128 spec.trafficPolicy.loadBalancer.consistentHash"},
		},
		{
			name: "settings of HTTP for one port of several",
			objects: []string{
				xdstest.Object("ServiceEntry", "two", "{hosts: [two.example.com], addresses: [10.9.0.78], ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.1.0.1}]}"),
				rule("r", `{host: two.example.com, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}, portLevelSettings: [
					{port: {number: 80}, loadBalancer: {consistentHash: {httpHeaderName: x}}}, {port: {number: 90}, loadBalancer: {consistentHash: {httpHeaderName: x}}}]}}`),
			},
			want: []string{"r PTL0128 spec.trafficPolicy.portLevelSettings[1].loadBalancer.consistentHash"},
		},
		{
			name: "routes for ports that no service has, and for gateways",
			objects: []string{entry, gateway("edge", edge), routes("v", `{hosts: [web.example.com], gateways: [mesh, edge], http: [{route: [{destination: {host: web.example.com}}]}],
				tcp: [{route: [{destination: {host: web.example.com}}]}], tls: [{match: [{sniHosts: [web.example.com]}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"v PTL0137 spec.tcp", "v PTL0137 spec.tls"},
		},
		{
			name: "servers that pass TLS, and routes for some of their names",
			objects: []string{entry, gateway("edge", `{selector: {app: edge}, servers: [
				{port: {number: 443, name: a, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ["*.example.com"]}, {port: {number: 444, name: b, protocol: HTTPS}, tls: {mode: PASSTHROUGH}, hosts: ["*"]},
				{port: {number: 443, name: c, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: [c.example.com]}, {port: {number: 445, name: d, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*"]}]}`),
				routes("w", `{hosts: ["*"], gateways: [edge], tls: [{match: [{sniHosts: [a.example.com], port: 443, destinationSubnets: [10.0.0.0/8]}, {sniHosts: [b.example.com, a.example.com, c.example.com, o.example.org], port: 443}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("v", `{hosts: ["*"], gateways: [edge], tls: [{match: [{sniHosts: [b.example.com], port: 443}], route: [{destination: {host: web.example.com}}]}, {match: [{sniHosts: [b.example.com], port: 446}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{
				"edge PTL0171 spec.servers[1]", "v PTL0136 spec.tls[0].match[0].sniHosts[0] beside w", "v PTL0172 spec.tls[1] beside edge",
				"w PTL0331 spec.tls[0].match[1].sniHosts[3] beside edge", "w PTL0128 spec.tls[0].match[0].destinationSubnets",
				"w PTL0136 spec.tls[0].match[1].sniHosts[1]", "w PTL0136 spec.tls[0].match[1].sniHosts[2] beside edge",
			},
		},
		{
			name: "servers of TCP, and a route for one of them",
			objects: []string{entry, gateway("edge", `{selector: {app: edge}, servers: [{port: {number: 9000, name: a, protocol: TCP}, hosts: ["*"]}, {port: {number: 9001, name: b, protocol: MYSQL}, hosts: ["*"]},
				{port: {number: 9000, name: c, protocol: REDIS}, hosts: ["*"]}, {port: {number: 9000, name: d, protocol: HTTP}, hosts: ["*"]}]}`),
				routes("v", `{hosts: [tcp.example.com], gateways: [edge], tcp: [{match: [{port: 9000}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"edge PTL0119 spec.servers[2].port", "edge PTL0119 spec.servers[3].port", "edge PTL0171 spec.servers[1]"},
		},
		{
			name: "two Gateways with one port for TCP",
			objects: []string{entry, gateway("edge", `{selector: {app: edge}, servers: [{port: {number: 9000, name: a, protocol: TCP}, hosts: ["*"]}]}`),
				gateway("other", `{selector: {app: edge}, servers: [{port: {number: 9000, name: a, protocol: TCP}, hosts: ["*"]}]}`),
				routes("v", `{hosts: [tcp.example.com], gateways: [edge], tcp: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"other PTL0119 spec.servers[0].port beside edge"},
		},
		{
			name: "servers that meet on the target port of the service of a gateway", proxies: proxies(router(map[string]string{"app": "edge"})),
			objects: []string{entry, xdstest.Object("ServiceEntry", "edge", "{hosts: [edge.example.com], resolution: STATIC, ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: b, protocol: TCP}], endpoints: [{address: 10.1.0.1, ports: {a: 8080, b: 8080}}]}"),
				gateway("edge", edge), gateway("other", `{selector: {app: edge}, servers: [{port: {number: 81, name: b, protocol: TCP}, hosts: ["*"]}, {port: {number: 8080, name: c, protocol: HTTP}, hosts: ["*"]}, {port: {number: 8080, name: d, protocol: TCP}, hosts: ["*"]}]}`),
				routes("v", viaWeb), routes("w", `{hosts: [tcp.example.com], gateways: [other], tcp: [{match: [{port: 81}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"other PTL0119 spec.servers[0].port beside edge", "other PTL0119 spec.servers[2].port"},
		},
		{
			name: "the same servers where no gateway is of the service",
			objects: []string{entry, xdstest.Object("ServiceEntry", "edge", "{hosts: [edge.example.com], resolution: STATIC, ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: b, protocol: TCP}], endpoints: [{address: 10.1.0.2, ports: {a: 8080, b: 8080}}]}"),
				gateway("edge", edge), gateway("other", `{selector: {app: edge}, servers: [{port: {number: 81, name: b, protocol: TCP}, hosts: ["*"]}]}`),
				routes("v", viaWeb), routes("w", `{hosts: [tcp.example.com], gateways: [other], tcp: [{match: [{port: 81}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{},
		},
		{
			name: "routes for a Gateway without a server of their kind",
			objects: []string{entry, gateway("edge", edge), gateway("bytes", `{selector: {app: edge}, servers: [{port: {number: 9000, name: a, protocol: TCP}, hosts: ["*"]}]}`),
				routes("a", `{hosts: [web.example.com], gateways: [bytes], http: [{route: [{destination: {host: web.example.com}}]}], tcp: [{route: [{destination: {host: web.example.com}}]}]}`),
				routes("b", `{hosts: [web.example.com], gateways: [edge], tcp: [{route: [{destination: {host: web.example.com}}]}], http: [{route: [{destination: {host: web.example.com}}]}]}`),
				routes("c", `{hosts: [tcp.example.com], gateways: [bytes], tcp: [{match: [{port: 9001}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("d", `{hosts: [d.example.com], gateways: [edge, bytes], http: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"a PTL0172 spec.http beside bytes", "b PTL0172 spec.tcp[0] beside edge", "c PTL0172 spec.tcp[0] beside bytes", "d PTL0172 spec.gateways[1] beside bytes"},
		},
		{
			name: "tcp routes of a gateway behind others",
			objects: []string{entry, gateway("bytes", `{selector: {app: edge}, servers: [{port: {number: 9000, name: a, protocol: TCP}, hosts: ["*"]}, {port: {number: 9001, name: b, protocol: TCP}, hosts: ["*"]}]}`),
				routes("a", `{hosts: [a.example.com], gateways: [bytes], tcp: [{match: [{port: 9000, destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: web.example.com}}]}, {match: [{port: 9000}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("b", `{hosts: [b.example.com], gateways: [bytes], tcp: [{match: [{port: 9000}], route: [{destination: {host: web.example.com}}]}, {route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"a PTL0135 spec.tcp[1]", "a PTL0128 spec.tcp[0].match[0].destinationSubnets", "b PTL0135 spec.tcp[0] beside a"},
		},
		{
			name:    "a host without a service",
			objects: []string{entry, routes("v", `{hosts: [nobody.example.com], http: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want:    []string{"v PTL0123 spec.hosts[0]"},
		},
		{
			name:    "a destination that is not there, by a short name",
			objects: []string{entry, routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: web}}]}]}`)},
			want:    []string{"v PTL0101 spec.http[0].route[0].destination.host", "v PTL0155 spec.http[0].route[0].destination.host"},
		},
		{
			name:    "a destination that is not visible",
			objects: []string{entry, private, routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: private.example.com}}]}]}`)},
			want:    []string{"v PTL0125 spec.http[0].route[0].destination.host"},
		},
		{
			name:    "a port and a subset that are not there",
			objects: []string{entry, routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com, port: {number: 81}, subset: v1}}]}]}`)},
			want:    []string{"v PTL0110 spec.http[0].route[0].destination.port.number", "v PTL0102 spec.http[0].route[0].destination.subset"},
		},
		{
			name: "mirrors that are not there, not visible, and of an unknown subset and port",
			objects: []string{entry, private, routes("v", `{hosts: [web.example.com], http: [{match: [{uri: {exact: /a}}], route: [{destination: {host: web.example.com}}], mirror: {host: gone.example.com}},
				{route: [{destination: {host: web.example.com}}], mirrors: [{destination: {host: private.example.com}}, {destination: {host: web.example.com, subset: v9, port: {number: 81}}}]}]}`)},
			want: []string{"v PTL0101 spec.http[0].mirror.host", "v PTL0125 spec.http[1].mirrors[0].destination.host",
				"v PTL0110 spec.http[1].mirrors[1].destination.port.number", "v PTL0102 spec.http[1].mirrors[1].destination.subset"},
		},
		{
			name: "a subset that the rule does not have",
			objects: []string{
				entry, rule("r", `{host: web.example.com, subsets: [{name: v1, labels: {version: v1}}]}`),
				routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com, subset: v2}}]}]}`),
			},
			want: []string{"v PTL0102 spec.http[0].route[0].destination.subset beside r"},
		},
		{
			name:    "subsets that select nothing, or are another's",
			objects: []string{entry, rule("a", `{host: web.example.com, subsets: [{name: v2, labels: {version: v2}}]}`), rule("b", `{host: web.example.com, subsets: [{name: v2, labels: {version: v1}}]}`)},
			want:    []string{"a PTL0104 spec.subsets[0]", "b PTL0115 spec.subsets[0].name beside a"},
		},
		{
			name:    "two traffic policies for one host",
			objects: []string{entry, rule("a", `{host: web.example.com, trafficPolicy: {loadBalancer: {simple: RANDOM}}}`), rule("b", `{host: web.example.com, trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}}}`)},
			want:    []string{"b PTL0120 spec.trafficPolicy beside a"},
		},
		{
			name:    "a rule for no service",
			objects: []string{rule("r", `{host: nobody.example.com}`), rule("p", `{host: "*.example.org"}`)},
			want:    []string{"p PTL0114 spec.host", "r PTL0114 spec.host"},
		},
		{
			name: "a host of a Gateway with routes of two VirtualServices",
			objects: []string{
				entry, gateway("edge", edge),
				routes("a", `{hosts: [web.example.com], gateways: [edge], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: web.example.com}}]}, {route: [{destination: {host: web.example.com}}]}]}`),
				routes("b", `{hosts: [other.example.com, web.example.com], gateways: [edge], http: [{match: [{uri: {prefix: /b}}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("c", `{hosts: [some.example.com], gateways: [edge], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("d", `{hosts: [some.example.com], gateways: [edge], http: [{route: [{destination: {host: web.example.com}}]}]}`),
			},
			proxies: proxies(router(map[string]string{"app": "edge"})),
			want:    []string{"b PTL0113 spec.hosts[1] beside a"},
		},
		{
			name:    "two VirtualServices for one host",
			objects: []string{entry, routes("a", toWeb), routes("b", toWeb)},
			want:    []string{"b PTL0111 spec.hosts[0] beside a"},
		},
		{
			name:    "a gateway that is not there",
			objects: []string{entry, routes("v", viaWeb)},
			want:    []string{"v PTL0103 spec.gateways[0]"},
		},
		{
			name:    "a host that the gateway does not serve",
			objects: []string{entry, gateway("edge", edge), routes("v", `{hosts: [web.example.org], gateways: [edge], http: [{route: [{destination: {host: web.example.com}}]}]}`)},
			want:    []string{"v PTL0112 spec.hosts[0] beside edge"},
		},
		{
			name:    "a gateway that no proxy runs",
			objects: []string{gateway("g", `{selector: {app: nobody}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}`)},
			want:    []string{"g PTL0116 spec.selector"},
		},
		{
			name:    "a route behind one that takes all",
			objects: []string{entry, routes("v", `{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com}}]}, {match: [{uri: {prefix: /x}}], route: [{destination: {host: web.example.com}}]}]}`)},
			want:    []string{"v PTL0113 spec.http[1]"},
		},
		{
			name: "sidecars that select nothing, overlap, and import nothing",
			objects: []string{
				entry, sidecar("a", `{workloadSelector: {labels: {app: web}}, egress: [{hosts: ["./*", "nowhere/*", "default/none.example.com"]}]}`),
				sidecar("b", `{workloadSelector: {labels: {app: web}}, egress: [{hosts: ["*/*"]}]}`), sidecar("c", `{workloadSelector: {labels: {app: none}}, egress: [{hosts: ["./*"]}]}`),
			},
			want: []string{"a PTL0124 spec.egress[0].hosts[1]", "a PTL0124 spec.egress[0].hosts[2]", "b PTL0118 spec.workloadSelector beside a", "c PTL0117 spec.workloadSelector"},
		},
		{
			name: "what gRPC clients do not take of a Sidecar",
			objects: []string{
				entry, sidecar("a", `{egress: [{port: {number: 0, name: s, protocol: HTTP}, bind: "unix:///s", hosts: ["./*"]}, {port: {number: 3128, name: p, protocol: HTTP_PROXY}, hosts: ["./*"]}, {hosts: ["./*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`),
				xdstest.Object("Sidecar", "shop/b", `{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`),
			},
			proxies: proxies(client("default")),
			want:    []string{"a PTL0133 spec.egress[0].bind", "a PTL0133 spec.egress[1].port.protocol", "a PTL0133 spec.outboundTrafficPolicy"},
		},
		{
			name: "zones without a proxy that discovers itself",
			objects: []string{
				entry, xdstest.Object("ServiceEntry", "calls", `{hosts: [calls.example.com], ports: [{number: 80, name: grpc, protocol: GRPC}], resolution: STATIC, endpoints: [{address: 10.0.0.3}]}`),
				rule("all", `{host: web.example.com, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {}}, portLevelSettings: [{port: {number: 80}, loadBalancer: {zoneAwareLbSetting: {enabled: true}}}]},
					subsets: [{name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {enabled: false}}}}]}`),
				rule("calls", "{host: calls.example.com, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {}}}}"),
			},
			proxies: proxies(client("default"), atAddress("n", "10.0.0.8", "r")),
			want: []string{
				"all PTL0201 spec.trafficPolicy.loadBalancer.zoneAwareLbSetting", "all PTL0201 spec.trafficPolicy.portLevelSettings[0].loadBalancer.zoneAwareLbSetting",
				"calls PTL0133 spec.trafficPolicy.loadBalancer.zoneAwareLbSetting", "calls PTL0201 spec.trafficPolicy.loadBalancer.zoneAwareLbSetting",
			},
		},
		{
			name: "zones with a proxy that discovers itself",
			objects: []string{
				entry, rule("all", "{host: web.example.com, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {}}}}"),
				rule("some", "{host: web.example.com, workloadSelector: {matchLabels: {app: none}}, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {}}}}"),
				xdstest.Object("DestinationRule", "other/mine", "{host: web.example.com, exportTo: [.], trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {}}}}"),
			},
			proxies: proxies(&status.Proxy{Node: "n", Type: "sidecar", Namespace: "default", Labels: map[string]string{"app": "web"}, Addresses: []string{"10.0.0.8"}, Replica: "r", SelfDiscovery: true}),
			want: []string{
				"some PTL0201 spec.trafficPolicy.loadBalancer.zoneAwareLbSetting", "some PTL0132 spec.workloadSelector",
				"mine PTL0211 metadata.namespace", "mine PTL0138 spec.host beside web", "mine PTL0201 spec.trafficPolicy.loadBalancer.zoneAwareLbSetting",
			},
		},
		{
			name: "what gRPC clients do not take of a rule",
			objects: []string{
				xdstest.Object("ServiceEntry", "calls", `{hosts: [calls.example.com], ports: [{number: 80, name: grpc, protocol: GRPC}], resolution: STATIC, endpoints: [{address: 10.0.0.3}]}`), entry,
				rule("r", `{host: calls.example.com, trafficPolicy: {outlierDetection: {}, tunnel: {targetHost: t.example.com, targetPort: 1}, connectionPool: {http: {http2MaxRequests: 1, maxRetries: 2}}, loadBalancer: {consistentHash: {httpHeaderName: x, maglev: {}}},
					portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: RANDOM}}]}}`),
				rule("web", "{host: web.example.com, trafficPolicy: {outlierDetection: {}}}"),
				rule("some", "{host: calls.example.com, workloadSelector: {matchLabels: {app: none}}, trafficPolicy: {outlierDetection: {}}}"),
				xdstest.Object("DestinationRule", "other/mine", "{host: calls.example.com, exportTo: [.], trafficPolicy: {outlierDetection: {}}}"),
			},
			proxies: proxies(client("default")),
			want: []string{
				"r PTL0128 spec.trafficPolicy.tunnel", "r PTL0133 spec.trafficPolicy.connectionPool.http.maxRetries",
				"r PTL0133 spec.trafficPolicy.loadBalancer.consistentHash.maglev", "r PTL0133 spec.trafficPolicy.outlierDetection",
				"r PTL0133 spec.trafficPolicy.portLevelSettings[0].loadBalancer.simple", "r PTL0133 spec.trafficPolicy.tunnel",
				"some PTL0132 spec.workloadSelector", "mine PTL0211 metadata.namespace", "mine PTL0138 spec.host beside calls",
			},
		},
		{
			name: "tcp and tls routes that gRPC clients do not take",
			objects: []string{strings.ReplaceAll(entry, "HTTP", "GRPC"), streamEntry("db", "TCP"), streamEntry("vault", "TLS"), routes("v", `{hosts: [web.example.com, db.example.com, vault.example.com],
				tcp: [{route: [{destination: {host: web.example.com}}]}], tls: [{match: [{sniHosts: [vault.example.com]}], route: [{destination: {host: web.example.com}}]}]}`)},
			proxies: proxies(client("default")),
			want:    []string{"v PTL0133 spec.tcp", "v PTL0133 spec.tls"},
		},
		{name: "resolution DYNAMIC_DNS", objects: []string{dynamic, entry, routes("v", `{hosts: ["*.example.org"], http: [{route: [{destination: {host: "*.example.org", port: {number: 80}}}]}],
			tls: [{match: [{sniHosts: [a.example.org]}], route: [{destination: {host: "*.example.org", port: {number: 443}}}]}]}`)}, proxies: proxies(client("default"))},
		{name: "which gRPC clients cannot call", objects: []string{strings.Replace(dynamic, "HTTP", "GRPC", 1)}, proxies: proxies(client("shop")), want: []string{"dynamic PTL0133 spec.resolution"}},
		{name: "nor see", objects: []string{strings.Replace(strings.Replace(dynamic, "HTTP", "GRPC", 1), "spec: {hosts", "spec: {exportTo: ['.'], hosts", 1)}, proxies: proxies(client("shop"))},
		{
			name:    "a tcp route to it",
			objects: []string{dynamic, streamEntry("db", "TCP"), routes("v", `{hosts: [db.example.com], tcp: [{route: [{destination: {host: "*.example.org", port: {number: 443}}}]}]}`)},
			want:    []string{"v PTL0151 spec.tcp[0].route[0].destination.host"},
		},
		{
			name: "HTTP routes to it, of ports that it has and has not",
			objects: []string{dynamic, xdstest.Object("ServiceEntry", "high", "{hosts: [high.example.com], ports: [{number: 80, name: http, protocol: HTTP}, {number: 8080, name: h2, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.9}]}"), entry,
				routes("v", `{hosts: [high.example.com], http: [{match: [{port: 80}], route: [{destination: {host: "*.example.org", port: {number: 80}}}]},
				{match: [{uri: {prefix: /a}, gateways: [edge]}], route: [{destination: {host: "*.example.org", port: {number: 80}}}]}, {route: [{destination: {host: "*.example.org", port: {number: 80}}}]}]}`),
				routes("w", `{hosts: [web.example.com], http: [{route: [{destination: {host: "*.example.org", port: {number: 80}}}]}]}`),
				gateway("edge", edge), routes("g", `{hosts: [web.example.com], gateways: [edge], http: [{route: [{destination: {host: "*.example.org", port: {number: 80}}}]}]}`)},
			want: []string{"v PTL0152 spec.http[2].route[0].destination", "v PTL0154 spec.http[1].match[0].gateways[0]"},
		},
		{
			name: "settings of a rule that have no effect on it",
			objects: []string{dynamic, rule("r", `{host: "*.example.org", trafficPolicy: {loadBalancer: {simple: RANDOM}, outlierDetection: {minHealthPercent: 10, maxEjectionPercent: 20}, connectionPool: {tcp: {maxConnections: 1}},
				portLevelSettings: [{port: {number: 80}, loadBalancer: {simple: RANDOM}}]}, subsets: [{name: s, labels: {v: v1}, trafficPolicy: {outlierDetection: {minHealthPercent: 5}}}]}`)},
			want: []string{"r PTL0128 spec.subsets[0].labels", "r PTL0128 spec.subsets[0].trafficPolicy.outlierDetection.minHealthPercent", "r PTL0128 spec.trafficPolicy.loadBalancer",
				"r PTL0128 spec.trafficPolicy.outlierDetection.minHealthPercent", "r PTL0128 spec.trafficPolicy.portLevelSettings[0].loadBalancer"},
		},
		{name: "and have some on others", objects: []string{dynamic, entry, rule("r", `{host: "*", trafficPolicy: {loadBalancer: {simple: RANDOM}}}`)}},
		{
			name: "selectors of clients",
			objects: []string{
				entry, rule("all", "{host: web.example.com, subsets: [{name: v1, labels: {version: v1}}]}"),
				rule("some", "{host: web.example.com, workloadSelector: {matchLabels: {app: web}}, subsets: [{name: special, labels: {version: v1}}], trafficPolicy: {loadBalancer: {simple: RANDOM}}}"),
				rule("edge", "{host: web.example.com, workloadSelector: {matchLabels: {app: edge}}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}"),
				rule("nobody", "{host: web.example.com, workloadSelector: {matchLabels: {app: none}}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}"),
				routes("r", "{hosts: [web.example.com], http: [{route: [{destination: {host: web.example.com, subset: special}}]}]}"),
			},
			proxies: proxies(
				&status.Proxy{Node: "s", Type: "sidecar", Namespace: "default", Labels: map[string]string{"app": "web"}, Addresses: []string{"10.0.0.8"}, Replica: "r"},
				&status.Proxy{Node: "e", Type: "router", Namespace: "default", Labels: map[string]string{"app": "edge"}, Addresses: []string{"10.0.0.9"}, Replica: "r"},
				&status.Proxy{Node: "o", Type: "router", Namespace: "other", Labels: map[string]string{"app": "none"}, Addresses: []string{"10.0.0.7"}, Replica: "r"},
			),
			want: []string{"nobody PTL0132 spec.workloadSelector"},
		},
		{
			name: "egress listeners that have the port of a service and do not carry it",
			objects: []string{
				entry, xdstest.Object("ServiceEntry", "db", `{hosts: [db.example.com], ports: [{number: 5432, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.0.0.3}]}`),
				sidecar("a", `{egress: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ["./db.example.com"]}, {port: {number: 5432, name: b, protocol: HTTP}, hosts: ["./*"]}, {hosts: ["*/*"]}]}`),
			},
			want: []string{"a PTL0130 spec.egress[0].port beside web", "a PTL0134 spec.egress[0].port", "a PTL0130 spec.egress[1].port beside db"},
		},
		{
			name: "egress listeners that carry nothing",
			objects: []string{
				entry, sidecar("a", `{egress: [{port: {number: 81, name: a, protocol: TCP}, hosts: ["./*"]}, {port: {number: 0, name: b, protocol: TCP}, bind: "unix:///b", hosts: ["./*"]},
					{port: {number: 0, name: c, protocol: TCP}, bind: "unix:///c", hosts: ["./web.example.com"]}, {port: {number: 0, name: d, protocol: HTTP}, bind: "unix:///d", hosts: ["./*"]},
					{port: {number: 3128, name: e, protocol: HTTP_PROXY}, hosts: ["./*"]}]}`),
			},
			want: []string{"a PTL0134 spec.egress[0].port", "a PTL0134 spec.egress[1].hosts"},
		},
		{
			name:    "an egress listener that is an HTTP proxy on the port of a service",
			objects: []string{entry, sidecar("a", `{egress: [{port: {number: 80, name: a, protocol: HTTP_PROXY}, hosts: ["./*"]}]}`)},
			want:    []string{"a PTL0130 spec.egress[0].port beside web"},
		},
		{
			name: "egress proxies that are not there",
			objects: []string{
				entry, private, sidecar("a", `{workloadSelector: {labels: {app: web}}, outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: nobody.example.com, port: {number: 80}}}}`),
				xdstest.Object("Sidecar", "shop/b", `{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: web.example.com, port: {number: 81}, subset: v1}}}`),
				xdstest.Object("Sidecar", "istio-system/c", `{egress: [{hosts: ["./*"]}], outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: web.example.com, port: {number: 80}}}}`),
			},
			want: []string{
				"a PTL0101 spec.outboundTrafficPolicy.egressProxy.host",
				"b PTL0110 spec.outboundTrafficPolicy.egressProxy.port.number", "b PTL0102 spec.outboundTrafficPolicy.egressProxy.subset",
			},
		},
		{
			name: "egress listeners that carry the services of their ports, or see no other",
			objects: []string{
				entry, private, sidecar("a", `{egress: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ["./web.example.com"]}]}`),
				xdstest.Object("ServiceEntry", "late", `{hosts: [late.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.3}]}`),
			},
		},
		{
			name: "the proxy of an endpoint is gone", objects: []string{entry},
			proxies: proxies(atAddress("w", "10.0.0.1", "")),
			want:    []string{"web PTL0126 spec.endpoints[0].address"},
		},
		{
			name: "one of the proxies at an address is connected", objects: []string{entry},
			proxies: proxies(atAddress("old", "10.0.0.1", ""), atAddress("new", "10.0.0.1", "r")),
		},
		{name: "a gateway at the address of an endpoint is gone", objects: []string{entry}, proxies: proxies(gone)},
		{name: "and so is the sidecar", objects: []string{entry}, proxies: proxies(&running, atAddress("w", "10.0.0.1", "")), want: []string{"web PTL0126 spec.endpoints[0].address"}},
		{
			name: "matches for ports that no service of the hosts has",
			objects: []string{entry, dynamic, streamEntry("db", "TCP"), gateway("edge", edge),
				routes("v", `{hosts: [web.example.com], http: [{match: [{port: 80}, {port: 9999}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("db", `{hosts: [db.example.com], tcp: [{match: [{port: 9999}], route: [{destination: {host: db.example.com}}]}]}`),
				routes("both", `{hosts: [www.example.com, web.example.com], gateways: [edge, mesh], http: [{match: [{port: 9999}, {port: 9998, gateways: [mesh]}, {port: 9997, gateways: [edge]}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("under", `{hosts: [api.example.org], http: [{match: [{port: 443}, {port: 444}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("none", `{hosts: [none.example.com], http: [{match: [{port: 9999}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"both PTL0111 spec.hosts[1] beside v", "both PTL0123 spec.hosts[0]", "both PTL0153 spec.http[0].match[1].port", "db PTL0153 spec.tcp[0].match[0].port",
				"none PTL0123 spec.hosts[0]", "under PTL0123 spec.hosts[0]", "v PTL0153 spec.http[0].match[1].port"},
		},
		{
			name: "matches that name gateways which are none of the VirtualService",
			objects: []string{entry, gateway("edge", edge),
				routes("v", `{hosts: [web.example.com], http: [{match: [{gateways: [edge, mesh]}, {gateways: [mesh]}], route: [{destination: {host: web.example.com}}]}]}`),
				routes("w", `{hosts: [web.example.com], gateways: [default/edge], http: [{match: [{gateways: [edge], uri: {exact: /a}}, {gateways: [mesh]}], route: [{destination: {host: web.example.com}}]}]}`)},
			want: []string{"v PTL0154 spec.http[0].match[0].gateways[0]", "w PTL0154 spec.http[0].match[1].gateways[0]"},
		},
		{
			name: "fields that gRPC clients do not take", objects: []string{strings.ReplaceAll(entry, "HTTP", "GRPC"), odd}, proxies: proxies(client("other")),
			want: []string{
				"v PTL0133 spec.http[0].corsPolicy", "v PTL0133 spec.http[0].mirror", "v PTL0133 spec.http[0].retries.perTryTimeout", "v PTL0133 spec.http[0].rewrite",
				"v PTL0133 spec.http[0].route[0].headers", "v PTL0133 spec.http[1].redirect",
			},
		},
		{name: "where there are no clients", objects: []string{strings.ReplaceAll(entry, "HTTP", "GRPC"), odd}},
		{name: "which call no HTTP", objects: []string{entry, odd}, proxies: proxies(client("other"))},
		{
			name:    "and see what is exported to them",
			objects: []string{strings.ReplaceAll(entry, "HTTP", "GRPC"), strings.Replace(odd, "{hosts", "{exportTo: ['.'], hosts", 1)}, proxies: proxies(client("other")),
		},
		{
			name: "a rule where neither the service nor a client is",
			objects: []string{entry, rule("other/a", `{host: web.example.com}`), rule("other/b", `{host: web.example.com, exportTo: [elsewhere]}`),
				rule("elsewhere/c", `{host: web.example.com}`), rule("d", `{host: web.example.com, exportTo: [other]}`), rule("istio-system/root", `{host: web.example.com}`)},
			proxies: proxies(router(map[string]string{"app": "edge"}), client("elsewhere")),
			want:    []string{"d PTL0211 spec.exportTo", "c PTL0138 spec.host beside web", "a PTL0211 metadata.namespace", "a PTL0138 spec.host beside web", "b PTL0211 spec.exportTo", "b PTL0138 spec.host beside web"},
		},
		{
			name:    "localities that no endpoint and no proxy has",
			objects: []string{entry, rule("a", near("failover: [{from: eu, to: us}]")), rule("other/b", near("failoverPriority: [rack]"))},
			want:    []string{"a PTL0212 " + nearField, "a PTL0212 " + nearField, "b PTL0211 metadata.namespace", "b PTL0138 spec.host beside web"},
			proxies: proxies(placed("w", "10.0.0.1", "")),
		},
		{
			name:    "localities of shares, and none that a rule switches off",
			objects: []string{entry, rule("a", near("distribute: [{from: eu/*, to: {eu/a: 100}}]")), rule("b", "{host: '*.example.com', trafficPolicy: {loadBalancer: {localityLbSetting: {enabled: false, failover: [{from: eu, to: us}]}}}}")},
			want:    []string{"a PTL0212 " + nearField},
			proxies: proxies(placed("w", "10.0.0.9", "eu/b")),
		},
		{
			name:    "that some have",
			objects: []string{strings.Replace(entry, "address: 10.0.0.1,", "address: 10.0.0.1, locality: eu/a,", 1), rule("a", near("failover: [{from: eu, to: us}]"))},
			proxies: proxies(placed("v", "10.0.0.8", ""), placed("w", "10.0.0.9", "eu/b")),
		},
		{
			name: "that a workload tells of its proxy",
			objects: []string{strings.Replace(entry, "address: 10.0.0.1,", "address: 10.0.0.1, locality: eu/a,", 1),
				rule("a", near("distribute: [{from: eu/*, to: {eu/a: 100}}]"))},
			proxies: proxies(placed("w", "10.0.0.1", "")),
		},
		{
			name: "headless services with a workload in common",
			objects: []string{headless("a", "5432", "TCP"), headless("b", "5432", "TCP"), headless("c", "5433", "TCP"),
				xdstest.Object("WorkloadEntry", "w", "{address: 10.0.0.9, labels: {app: x}}")},
			want: []string{"b PTL0218 spec.hosts[0] beside a"},
		},
		{
			name: "sidecars that capture nothing",
			objects: []string{streamEntry("a", "TCP"), streamEntry("bb", "TCP"), xdstest.Object("ServiceEntry", "none", "{hosts: [none.example.com], ports: [{number: 90, name: p, protocol: HTTP}], resolution: NONE}"),
				xdstest.Object("ServiceEntry", "other/hidden", "{hosts: [hidden.example.com], exportTo: ['.'], ports: [{number: 80, name: p, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.0.0.9}]}")},
			proxies: proxies(bystander("default")),
			want:    []string{"bb PTL0213 spec.hosts[0] beside a", "none PTL0214 spec.resolution"},
		},
		{
			name: "which see but one of two, or tell TLS by its names",
			objects: []string{streamEntry("a", "TCP"), streamEntry("bb", "TCP"), strings.ReplaceAll(streamEntry("t", "TLS"), "80", "443"), strings.ReplaceAll(streamEntry("uuu", "TLS"), "80", "443"),
				sidecar("s", `{egress: [{hosts: ["./bb.example.com", "./t.example.com", "./uuu.example.com"]}]}`)},
			proxies: proxies(bystander("default")),
		},
		{
			name:    "and listen at the addresses of services, or capture traffic",
			objects: []string{streamEntry("a", "TCP"), streamEntry("bb", "TCP")},
			proxies: proxies(placed("w", "10.0.0.9", "eu"), func() *status.Proxy { p := bystander("default"); p.DNSCapture = true; return p }()),
		},
		{
			name: "hosts of another namespace",
			objects: []string{
				entry, rule("other/r", "{host: web.example.com}"), routes("other/v", "{hosts: [own.example.org, '*.example.com'], http: ["+toIt+"]}"),
				gateway("other/g", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.example.com, 'other/web.example.com', 'default/web.example.com', '*.example.com']}]}"),
				rule("istio-system/root", "{host: web.example.com}"), routes("v", "{hosts: [web.example.com], http: ["+toIt+"]}"),
			},
			proxies: proxies(router(map[string]string{"app": "edge"}), client("other")),
			want: []string{
				"r PTL0138 spec.host beside web", "g PTL0138 spec.servers[0].hosts[0] beside web", "g PTL0138 spec.servers[0].hosts[1] beside web",
				"v PTL0123 spec.hosts[0]", "v PTL0138 spec.hosts[1] beside web",
			},
		},
		{
			name: "hosts of another namespace that consents, in part",
			objects: []string{
				entry, rule("other/r", "{host: web.example.com}"), rule("other/s", "{host: '*.example.com'}"), routes("other/v", "{hosts: [web.example.com], http: ["+toIt+"]}"),
				hostGrant("g", "{from: [{kind: DestinationRule, namespace: other}], to: [{hosts: ['*.example.com']}]}"),
				hostGrant("other/h", "{from: [{kind: VirtualService, namespace: default}], to: [{hosts: ['*']}]}"),
			},
			proxies: proxies(client("other")),
			want:    []string{"v PTL0138 spec.hosts[0] beside web"},
		},
		{
			name:    "fields that are not served, and a sum that nobody checks",
			objects: []string{entry, plugin, gateway("edge", `{selector: {app: edge}, servers: [{defaultEndpoint: "127.0.0.1:80", port: {number: 80, name: http, protocol: HTTP}, hosts: ["*.example.com"]}]}`)},
			want:    []string{"plugin PTL0121 spec.imagePullSecret", "plugin PTL0483 spec.sha256", "edge PTL0121 spec.servers[0].defaultEndpoint"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tc.objects...)
			facts := verdict.Facts{Mesh: w.Context(), Proxies: known}
			if tc.proxies.Len() > 0 {
				facts.Proxies = tc.proxies
			}
			var x *index.Index
			if diff := cmp.Diff(append([]string{}, tc.want...), said(x.Next(facts))); diff != "" {
				t.Errorf("verdicts (-want +got)\n%s", diff)
			}
		})
	}
}

// TestObjectsWithoutConsent: if the mesh asks who speaks for a host, an object without consent
// says that it has no effect, until there is consent or its writer had the right.
func TestObjectsWithoutConsent(t *testing.T) {
	t.Parallel()
	to := "http: [" + toIt + "], tcp: [{route: [{destination: {host: web.example.com}}]}]"
	w := xdstest.NewWorld(t,
		entry, strings.Replace(entry, "{name: web}", "{name: web, namespace: other}", 1),
		rule("other/r", "{host: web.example.com, subsets: [{name: v1, labels: {v: x}}]}"), rule("other/rr", "{host: '*.example.com'}"),
		routes("other/v", "{hosts: [web.example.com], "+to+"}"), routes("other/vv", "{hosts: ['*.example.com'], "+to+"}"),
		gateway("other/g", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.example.com, '*.example.com']}]}"),
		routes("other/w", "{hosts: [web.example.com], gateways: [g], http: ["+toIt+"]}"),
		gateway("other/h", "{selector: {app: edge}, servers: [{port: {number: 81, name: http, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: x}, hosts: [web.example.com]}]}"),
	)
	var x *index.Index
	expect := func(want ...string) {
		t.Helper()
		facts := verdict.Facts{Mesh: w.Context(), Proxies: proxies(router(map[string]string{"app": "edge"}), client("other"))}
		x = x.Next(facts)
		var fresh *index.Index
		if diff := cmp.Diff(append([]string{}, want...), said(x)); diff != "" {
			t.Errorf("verdicts (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(said(fresh.Next(facts)), said(x)); diff != "" {
			t.Errorf("judged anew (-want +got)\n%s", diff)
		}
	}
	expect("r PTL0104 spec.subsets[0]", "r PTL0138 spec.host beside web", "rr PTL0138 spec.host beside web",
		"g PTL0138 spec.servers[0].hosts[0] beside web", "h PTL0311 spec.servers[0].tls.credentialName", "h PTL0138 spec.servers[0].hosts[0] beside web",
		"web PTL0138 spec.hosts[0] beside web", "v PTL0137 spec.tcp", "v PTL0138 spec.hosts[0] beside web",
		"vv PTL0135 spec.hosts[0] beside v", "vv PTL0137 spec.tcp", "vv PTL0138 spec.hosts[0] beside web", "w PTL0138 spec.hosts[0] beside web")
	w.SetHostConsent(true)
	expect("r PTL0139 spec.host beside web", "r PTL0104 spec.subsets[0]", "rr PTL0139 spec.host beside web",
		"g PTL0139 spec.servers[0].hosts[0] beside web", "h PTL0139 spec.servers[0].hosts[0] beside web",
		"web PTL0139 spec.hosts[0] beside web", "v PTL0139 spec.hosts[0] beside web", "v PTL0137 spec.tcp",
		"vv PTL0139 spec.hosts[0] beside web", "vv PTL0137 spec.tcp", "w PTL0139 spec.hosts[0] beside web")
	for _, kind := range []string{"DestinationRule", "VirtualService", "Gateway", "ServiceEntry"} {
		w.Apply(hostGrant(strings.ToLower(kind), "{from: [{kind: "+kind+", namespace: other}], to: [{hosts: ['*']}]}"))
	}
	consented := []string{"r PTL0104 spec.subsets[0]", "h PTL0311 spec.servers[0].tls.credentialName", "v PTL0137 spec.tcp", "vv PTL0135 spec.hosts[0] beside v", "vv PTL0137 spec.tcp"}
	expect(consented...)
	w.Delete("hostgrant/default/destinationrule")
	expect(append([]string{"r PTL0139 spec.host beside web", "r PTL0104 spec.subsets[0]", "rr PTL0139 spec.host beside web"}, consented[1:]...)...)
	right := "metadata: {annotations: {" + claim.RightsAnnotation + ": 'default/web.example.com'}, "
	w.Apply(strings.Replace(rule("other/r", "{host: web.example.com, subsets: [{name: v1, labels: {v: x}}]}"), "metadata: {", right, 1))
	expect(append([]string{"r PTL0104 spec.subsets[0]", "rr PTL0139 spec.host beside web"}, consented[1:]...)...)
}

// TestACauseThatGoesTakesItsVerdictsAlong adds and removes causes one after another.
func TestACauseThatGoesTakesItsVerdictsAlong(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t)
	var x *index.Index
	now := proxies()
	expect := func(want ...string) {
		t.Helper()
		x = x.Next(verdict.Facts{Mesh: w.Context(), Proxies: now})
		if diff := cmp.Diff(append([]string{}, want...), said(x)); diff != "" {
			t.Fatalf("verdicts (-want +got)\n%s", diff)
		}
		counted := map[verdict.Code]int{}
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				counted[v.Code]++
			}
		}
		for k := range verdict.Kinds() {
			if x.Count(k.Code) != counted[k.Code] {
				t.Errorf("%s is counted %d times, there are %d", k.Code, x.Count(k.Code), counted[k.Code])
			}
		}
	}
	expect()
	w.Apply(routes("v", viaWeb))
	expect("v PTL0103 spec.gateways[0]", "v PTL0101 spec.http[0].route[0].destination.host")
	w.Apply(gateway("edge", edge))
	expect("edge PTL0116 spec.selector", "v PTL0101 spec.http[0].route[0].destination.host")
	w.Apply(entry)
	expect("edge PTL0116 spec.selector")
	now = proxies(router(map[string]string{"app": "edge"}))
	expect()
	// For a gateway without an identity, the labels of an endpoint at its address count.
	w.Apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: beside, namespace: default}
spec:
  hosts: [beside.example.com]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.0.1, labels: {app: web}}]
`)
	expect("edge PTL0116 spec.selector")
	proved := router(map[string]string{"app": "edge"})
	proved.Identity = "spiffe://cluster.local/ns/default/sa/edge"
	now = proxies(proved)
	expect()
	w.Delete("serviceentry/default/beside")
	w.Delete("gateway/default/edge")
	expect("v PTL0103 spec.gateways[0]")
	w.Delete("virtualservice/default/v")
	expect()
}

// TestOtherLabelsOfAProxyThatDiscoversItself: whether a rule finds such a proxy is judged again
// when the same proxy comes back with other labels.
func TestOtherLabelsOfAProxyThatDiscoversItself(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, entry, rule("some", "{host: web.example.com, workloadSelector: {matchLabels: {app: edge}}, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {}}}}"))
	var x *index.Index
	for _, app := range []string{"edge", "other", "edge"} {
		p := router(map[string]string{"app": app})
		p.SelfDiscovery = true
		facts := verdict.Facts{Mesh: w.Context(), Proxies: proxies(p)}
		x = x.Next(facts)
		var fresh *index.Index
		if diff := cmp.Diff(said(fresh.Next(facts)), said(x)); diff != "" {
			t.Errorf("with app %s (-judged anew +judged by what changed)\n%s", app, diff)
		}
	}
}

// TestWhatSeveralSourcesHave: an object has a verdict that names both sources as long as
// another source has the same key.
func TestWhatSeveralSourcesHave(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, entry, routes("v", toWeb))
	in := w.Context().Inputs()
	const path = "networking.istio.io/VirtualService/default/v"
	stored := in.Configs.Configs().Value(path)
	ofFile := *stored
	ofFile.Source = "/etc/mesh"
	shadow := func(objects ...*config.Config) *cache.Snapshot {
		content := in.Configs.Content()
		content.Configs = content.Configs.Set(path, objects[0])
		content.Shadows = content.Shadows.Set(path, &cache.Shadow{Objects: objects})
		return in.Configs.Next(in.Configs.Revision(), content)
	}
	var x *index.Index
	for i, step := range []struct {
		configs *cache.Snapshot
		says    string
	}{
		{in.Configs, ""},
		{shadow(stored, &ofFile), "the store and the source /etc/mesh have an object of this kind, namespace and name: that of the store is used alone"},
		{shadow(&ofFile, stored), "the source /etc/mesh and the store have an object of this kind, namespace and name: that of the source /etc/mesh is used alone"},
		{in.Configs, ""},
	} {
		now := in
		now.Configs = step.configs
		facts := verdict.Facts{Mesh: w.Context().Next(now)}
		x = x.Next(facts)
		want := []string{}
		if step.says != "" {
			want = []string{"v PTL0181 "}
		}
		if diff := cmp.Diff(want, said(x)); diff != "" {
			t.Errorf("step %d (-want +got)\n%s", i, diff)
		}
		for _, v := range x.Of(stored.Key()) {
			if v.Message != step.says {
				t.Errorf("step %d: %s", i, v.Message)
			}
		}
		if diff := cmp.Diff(said((*index.Index)(nil).Next(facts)), said(x)); diff != "" {
			t.Errorf("step %d (-from nothing +by increments)\n%s", i, diff)
		}
	}
}

// TestWhatServersCannotBuild: the objects behind a resource that a server could not build have
// a verdict as long as a server reports it. Rejections by proxies do not count.
func TestWhatServersCannotBuild(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, entry, routes("v", toWeb))
	const path = "networking.istio.io/VirtualService/default/v"
	replica := func(problems ...status.Problem) pmap.Map[*status.Replica] {
		var out pmap.Map[*status.Replica]
		return out.Set("a", &status.Replica{ID: "a", Problems: problems}).Set("b", &status.Replica{ID: "b", Problems: problems})
	}
	broken := status.Problem{Type: "RDS", Rejected: true, Message: "too long", Objects: []string{path}}
	refused := status.Problem{Type: "RDS", Rejected: true, Message: "no", Objects: []string{path}, Node: "p"}
	var x *index.Index
	for i, step := range []struct {
		replicas pmap.Map[*status.Replica]
		want     []string
	}{
		{replica(refused), []string{}}, {replica(broken, refused), []string{"v PTL0131 "}}, {replica(broken), []string{"v PTL0131 "}}, {replica(), []string{}},
	} {
		facts := verdict.Facts{Mesh: w.Context(), Replicas: step.replicas}
		x = x.Next(facts)
		if diff := cmp.Diff(step.want, said(x)); diff != "" {
			t.Errorf("step %d (-want +got)\n%s", i, diff)
		}
		if diff := cmp.Diff(said((*index.Index)(nil).Next(facts)), said(x)); diff != "" {
			t.Errorf("step %d (-from nothing +by increments)\n%s", i, diff)
		}
	}
}

// TestAnObjectIsValidatedOnce: if only the objects that an object names have changed, the
// warnings of its schema are kept, without validating it again.
func TestAnObjectIsValidatedOnce(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("Gateway", "edge", "{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"),
		xdstest.Object("DestinationRule", "r", "{host: web.example.com, trafficPolicy: {outlierDetection: {consecutiveErrors: 3}}}"))
	first := (*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context()})
	w.Apply(entry)
	then := first.Next(verdict.Facts{Mesh: w.Context()})
	warning := func(x *index.Index) *byte {
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				if v.Code == verdict.FieldNotServed {
					return unsafe.StringData(v.Message)
				}
			}
		}
		return nil
	}
	if n := len(said(first)); n != 3 || len(said(then)) != 2 {
		t.Errorf("before %q, then %q", said(first), said(then))
	}
	if before := warning(first); before == nil || before != warning(then) {
		t.Error("the object was validated again")
	}
}

// TestSchemasNameTheCodesOfTheTable: a warning of a schema has the same text as its verdict.
func TestSchemasNameTheCodesOfTheTable(t *testing.T) {
	t.Parallel()
	codes := map[string]bool{}
	for _, object := range []string{
		plugin, xdstest.Object("DestinationRule", "r", "{host: web.example.com, subsets: [{name: whole}], trafficPolicy: {outlierDetection: {consecutiveErrors: 3}}}"),
		routes("v", `{hosts: [web.example.com], gateways: [edge], http: [{match: [{uri: {prefix: /}}, {headers: {a: {exact: a}}}], route: [{destination: {host: web}}]}, {route: [{destination: {host: web}}]}]}`),
	} {
		documents, err := config.Decode("test", []byte(object), schema.Pilot().Type)
		if err != nil {
			t.Fatal(err)
		}
		documents[0].Config.Namespace = "default"
		warnings, err := schema.Pilot().Kind(documents[0].Config.GroupVersionKind).Validate(documents[0].Config)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range warnings {
			codes[w.Code] = true
			if v := (verdict.Verdict{Code: verdict.Code(w.Code), Field: w.Field, Message: w.Message}); v.String() != w.String() {
				t.Errorf("the schema says %q, the verdict %q", w, v)
			}
		}
	}
	if len(codes) != 4 {
		t.Errorf("warnings of all codes that schemas have, but %v", codes)
	}
}

func TestEveryCodeIsInTheTableOnce(t *testing.T) {
	t.Parallel()
	var codes []verdict.Code
	for k := range verdict.Kinds() {
		codes = append(codes, k.Code)
		if k.Title == "" || k.Effect == "" || k.Condition != "" && !status.Reserved(k.Condition) || k.Code.Kind() != k {
			t.Errorf("%+v", k)
		}
		if verdict.Severity(slices.Index(finding.Severities, k.Severity.String())) != k.Severity {
			t.Errorf("severity %s", k.Severity)
		}
	}
	if !slices.IsSorted(codes) || len(slices.Compact(slices.Clone(codes))) != len(codes) {
		t.Errorf("codes are not in order: %v", codes)
	}
}
