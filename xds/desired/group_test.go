package desired_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// history draws random objects of all kinds that are served.
type history struct {
	t     *rapid.T
	there []string // names of the objects that exist
	// pair is what secrets contain; without it there are no secrets.
	pair secrettest.Pair
}

func (h *history) one(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(h.t, label)
}

func (h *history) host(label string) string {
	return h.one(label, "a.shop.example", "b.shop.example", "*.shop.example", "a.edge.example")
}

func (h *history) port() string { return h.one("port", "80", "81", "9080") }

// object draws an object, and its name as World.Delete expects it.
func (h *history) object() (name, document string) {
	kind := h.one("kind", "ServiceEntry", "ServiceEntry", "WorkloadEntry", "DestinationRule", "VirtualService", "Gateway", "Sidecar", "PeerAuthentication", "AuthorizationPolicy", "RequestAuthentication", "KeySet", "HostGrant", "EnvoyFilter")
	short, namespace := h.one("name", "x", "z"), h.one("namespace", "shop", "edge", "istio-system")
	if kind == "Gateway" && h.pair.Cert != nil && h.one("with", "servers", "secrets") == "secrets" {
		return fmt.Sprintf("secret/%s/%s", namespace, short), h.secret(namespace + "/" + short)
	}
	if kind == "KeySet" {
		url := h.one("source", "https://a.example", "https://b.example")
		return "keyset/istio-system/" + keyset.Source{URL: url}.Name(), keySet(url, h.one("key", "1", "2"))
	}
	spec := map[string]func() string{
		"ServiceEntry": h.serviceEntry, "WorkloadEntry": h.workloadEntry, "DestinationRule": h.destinationRule,
		"VirtualService": h.virtualService, "Gateway": h.gateway, "Sidecar": h.sidecar, "PeerAuthentication": h.peerAuthentication,
		"AuthorizationPolicy": h.authorizationPolicy, "RequestAuthentication": h.requestAuthentication,
		"HostGrant": h.hostGrant, "EnvoyFilter": h.envoyFilter,
	}[kind]()
	return fmt.Sprintf("%s/%s/%s", strings.ToLower(kind), namespace, short), xdstest.Object(kind, namespace+"/"+short, spec)
}

func (h *history) exportTo() string { return h.one("exportTo", `["*"]`, `["."]`, "[shop]") }

func (h *history) serviceEntry() string {
	ports := fmt.Sprintf("[{number: %s, name: p, protocol: %s}]", h.port(), h.one("protocol", "HTTP", "TCP", "GRPC", "TLS", "''"))
	source := h.one("endpoints",
		"resolution: STATIC, endpoints: [{address: 10.1.0.1, labels: {v: x}}, {address: 10.1.0.2, labels: {v: z, security.istio.io/tlsMode: istio}, locality: r/z}, {address: 10.1.0.3, locality: r/y}]",
		"resolution: STATIC, workloadSelector: {labels: {app: w}}",
		"resolution: STATIC, endpoints: [{address: 10.0.0.3, ports: {p: 81}}, {address: 10.0.0.4, ports: {p: 8}}]",
		"resolution: STATIC, endpoints: [{address: 'unix:///a.sock'}, {address: 10.1.0.3, weight: 2, ports: {p: 7}, locality: r/y}]",
		"resolution: DNS_ROUND_ROBIN, endpoints: [{address: one.example}]",
		"resolution: DNS, endpoints: [{address: one.example}, {address: two.example, labels: {v: x}}]",
		"resolution: NONE")
	host := h.one("serviceHost", "a.shop.example", "b.shop.example", "a.edge.example")
	return fmt.Sprintf("{hosts: [%s], addresses: [%s], ports: %s, exportTo: %s, %s}",
		host, h.one("address", "", "10.9.0.1"), ports, h.exportTo(), source)
}

func (h *history) workloadEntry() string {
	return fmt.Sprintf("{address: %s, labels: {app: %s, v: %s}%s}",
		h.one("ip", "10.0.0.1", "10.1.0.7"), h.one("app", "w", "gw"), h.one("v", "x", "z"), h.one("more", "", ", serviceAccount: w", ", locality: r/z", ", ports: {p: 8}, weight: 3, network: net"))
}

func (h *history) destinationRule() string {
	return fmt.Sprintf("{host: '%s', %s, trafficPolicy: {%s}, subsets: [{name: %s, labels: {v: x}, trafficPolicy: {%s}}]}",
		h.host("host"), h.one("clients", "exportTo: "+h.exportTo(), "workloadSelector: {matchLabels: {v: x}}"), h.policy("policy"), h.one("subset", "x", "z"), h.policy("subsetPolicy"))
}

func (h *history) peerAuthentication() string {
	return fmt.Sprintf("{%smtls: {mode: %s}}", h.one("selects", "", "selector: {matchLabels: {app: w}}, portLevelMtls: {81: {mode: STRICT}}, "), h.one("mode", "STRICT", "PERMISSIVE", "DISABLE"))
}

func (h *history) authorizationPolicy() string {
	return fmt.Sprintf("{%saction: %s, rules: [{to: [{operation: {ports: ['%s']}}]}]}", h.selects(), h.one("action", "ALLOW", "DENY", "AUDIT"), h.one("toPort", "80", "81"))
}

func (h *history) requestAuthentication() string {
	return fmt.Sprintf("{%sjwtRules: [{issuer: a, jwksUri: '%s'}]}", h.selects(), h.one("source", "https://a.example", "https://b.example"))
}

func (h *history) envoyFilter() string {
	patch := func() string {
		context := h.one("context", "ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY") + h.one("proxy", "", ", proxy: {metadata: {NAMESPACE: shop}}")
		return fmt.Sprintf(h.one("patch",
			"{applyTo: CLUSTER, match: {context: %s, cluster: {service: a.shop.example}}, patch: {operation: MERGE, value: {connect_timeout: 7s}}}",
			"{applyTo: CLUSTER, match: {context: %s, cluster: {portNumber: 81}}, patch: {operation: REMOVE}}",
			"{applyTo: CLUSTER, match: {context: %s}, patch: {operation: ADD, value: {name: more, type: STATIC, connect_timeout: 1s}}}",
			"{applyTo: LISTENER, match: {context: %s}, patch: {operation: ADD, value: {name: added, address: {socket_address: {address: 127.0.0.1, port_value: 9999}}}}}",
			"{applyTo: LISTENER, match: {context: %s, listener: {portNumber: 80}}, patch: {operation: REMOVE}}",
			"{applyTo: HTTP_FILTER, match: {context: %s, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}, patch: {operation: INSERT_BEFORE, value: {name: x, config_discovery: {config_source: {ads: {}}, type_urls: [type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer]}}}}",
			"{applyTo: EXTENSION_CONFIG, match: {context: %s}, patch: {operation: ADD, value: {name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}}}",
			"{applyTo: ROUTE_CONFIGURATION, match: {context: %s}, patch: {operation: MERGE, value: {request_headers_to_remove: [x]}}}",
			"{applyTo: VIRTUAL_HOST, match: {context: %s}, patch: {operation: ADD, value: {name: own, domains: [own.example], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}}}",
			"{applyTo: VIRTUAL_HOST, match: {context: %s, routeConfiguration: {vhost: {name: 'a.shop.example:80'}}}, patch: {operation: REMOVE}}",
			"{applyTo: HTTP_ROUTE, match: {context: %s}, patch: {operation: MERGE, value: {request_headers_to_remove: [x-y]}}}"), context)
	}
	return fmt.Sprintf("{priority: %s, %sconfigPatches: [%s, %s]}", h.one("priority", "0", "1"),
		h.one("selects", "", "workloadSelector: {labels: {app: w}}, ", "targetRefs: [{group: networking.istio.io, kind: Gateway, name: x}], "), patch(), patch())
}

// selects draws whom a policy about requests is for.
func (h *history) selects() string {
	return h.one("selects", "", "selector: {matchLabels: {app: w}}, ", "targetRefs: [{group: networking.istio.io, kind: Gateway, name: x}], ")
}

func (h *history) hostGrant() string {
	return fmt.Sprintf("{from: [{kind: %s, namespace: %s}], to: [{hosts: ['%s']}]}",
		h.one("from", "VirtualService", "DestinationRule", "ServiceEntry", "Gateway"), h.one("granted", "shop", "edge"), h.one("hosts", "*", "*.shop.example", "a.shop.example"))
}

func (h *history) policy(label string) string {
	return h.one(label,
		"connectionPool: {tcp: {maxConnections: 1}}",
		"connectionPool: {tcp: {idleTimeout: 2s}}",
		"connectionPool: {tcp: {tcpKeepalive: {probes: 1, time: 2s}, maxConnectionDuration: 9s}, http: {http2KeepAlive: {interval: 1s, timeout: 2s}}}",
		"connectionPool: {http: {h2UpgradePolicy: UPGRADE, maxConcurrentStreams: 3}}",
		"connectionPool: {http: {useClientProtocol: true, idleTimeout: 3s}}",
		"tunnel: {targetHost: t.example, targetPort: 1}",
		"outlierDetection: {interval: 1s}",
		"outlierDetection: {interval: 1s}, loadBalancer: {localityLbSetting: {failoverPriority: [v]}}",
		"loadBalancer: {localityLbSetting: {distribute: [{from: r/z/*, to: {r/z/*: 70, r/y/*: 30}}]}}",
		"proxyProtocol: {version: V1}, retryBudget: {percent: 5}",
		"outlierDetection: {consecutive5xxErrors: 2}, loadBalancer: {localityLbSetting: {failover: [{from: r, to: q}]}}",
		"outlierDetection: {minHealthPercent: 10}, loadBalancer: {localityLbSetting: {failoverPriority: [v, app=w]}}",
		"loadBalancer: {simple: ROUND_ROBIN, warmup: {duration: 5s}}",
		"loadBalancer: {simple: PASSTHROUGH}",
		"loadBalancer: {consistentHash: {httpCookie: {name: c, path: /, ttl: 1s}}}",
		"loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 101}}}",
		"portLevelSettings: [{port: {number: 81}, connectionPool: {tcp: {connectTimeout: 1s}}}]")
}

func (h *history) virtualService() string {
	destination := h.one("destination", "a.shop.example", "b.shop.example", "unknown.example")
	switch h.one("delegates", "", "", "root", "delegate") {
	case "root":
		return fmt.Sprintf("{hosts: [%s], gateways: [%s], http: [{match: [{uri: {prefix: /a}, sourceLabels: {v: x}}], delegate: {name: %s, namespace: %s}}, {route: [{destination: {host: %s}}]}]}",
			h.one("vsHost", "a.shop.example", "b.shop.example"), h.one("gateways", "mesh", "edge/z, mesh"), h.one("delegate", "x", "z"), h.one("of", "shop", "edge"), destination)
	case "delegate":
		return fmt.Sprintf("{exportTo: %s, http: [{match: [{sourceLabels: {v: %s}}], route: [{destination: {host: %s, subset: x}}]}]}", h.exportTo(), h.one("v", "x", "z"), destination)
	}
	host := h.one("vsHost", "a.shop.example", "b.shop.example", "*.shop.example", "outside.example")
	routes := fmt.Sprintf("http: [{match: [{uri: {prefix: /a}, sourceLabels: {v: x}}], route: [{destination: {host: %s, subset: x}}]%s}, {match: [{%s}], %s}]",
		destination, h.one("more", "", ", timeout: 2s, retries: {attempts: 1, backoff: 1ms}", ", fault: {delay: {fixedDelay: 1s, percentage: {value: 1}}}",
			", mirrors: [{destination: {host: b.shop.example, subset: x}}]", ", corsPolicy: {allowOrigins: [{prefix: a}]}", ", rewrite: {authority: z.example}, headers: {response: {remove: [x]}}"),
		h.one("from", "", "", "sourceNamespace: shop"),
		h.one("last", "route: [{destination: {host: b.shop.example}}]", "redirect: {uri: /z}", "directResponse: {status: 200}",
			"route: [{destination: {host: a.shop.example}, weight: 1}, {destination: {host: b.shop.example}, weight: 2}]"))
	streams := h.one("tcp", "tcp: [{match: [{port: 80}], route: [{destination: {host: "+destination+"}}]}]",
		"tcp: [{match: [{destinationSubnets: [10.9.0.0/16]}, {sourceLabels: {v: x}}], route: [{destination: {host: "+destination+", subset: x}}]}]",
		"tcp: [{match: [{sourceNamespace: shop}, {gateways: [edge/z], port: 81}], route: [{destination: {host: a.shop.example}, weight: 1}, {destination: {host: b.shop.example, subset: x}, weight: 3}]}]")
	names := fmt.Sprintf("tls: [{match: [{sniHosts: ['%s']}], route: [{destination: {host: %s}}]}]", host, destination)
	return fmt.Sprintf("{hosts: ['%s'], gateways: [%s], exportTo: %s, %s}",
		host, h.one("gateways", "mesh", "x", "edge/z, mesh"), h.exportTo(), h.one("routes", routes, routes, streams, names, routes+", "+streams+", "+names))
}

func (h *history) gateway() string {
	return fmt.Sprintf("{selector: {app: %s}, servers: [{port: {number: %s, name: p, protocol: %s}, hosts: ['%s']}, {port: {number: 81, name: more, protocol: %s}, hosts: ['*']}]}",
		h.one("app", "gw", "w"), h.port(), h.one("serves", "HTTP", "HTTPS}, tls: {mode: SIMPLE, credentialName: x", "TCP", "HTTPS}, tls: {mode: ISTIO_MUTUAL"), h.one("serverHost", "*", "*.shop.example", "shop/*", "a.shop.example"),
		h.one("serves more", "HTTP", "MYSQL", "HTTPS}, tls: {mode: MUTUAL, credentialName: z", "HTTPS}, tls: {mode: OPTIONAL_MUTUAL, credentialNames: [x, z], caCertCredentialName: x"))
}

// secret draws a secret for servers of Gateways.
func (h *history) secret(name string) string {
	data := map[string][]byte{secret.TLSCert: h.pair.Cert, secret.TLSKey: h.pair.Key}
	switch h.one("secret has", "pair", "authority", "both") {
	case "authority":
		data = map[string][]byte{secret.Authority: h.pair.Cert}
	case "both":
		data[secret.TLSAuthority] = h.pair.Cert
	}
	return xdstest.Secret(name, data)
}

func (h *history) sidecar() string {
	listener := h.one("listener", "port: {number: "+h.port()+", name: e, protocol: HTTP}", "port: {number: 0, name: e, protocol: TCP}, bind: 'unix:///e.sock'",
		"port: {number: 3128, name: e, protocol: HTTP_PROXY}", "port: {number: 82, name: e, protocol: TCP}, captureMode: NONE")
	return fmt.Sprintf("{%s egress: [{%s, hosts: ['*/a.shop.example']}, {%shosts: ['%s']}]%s%s}",
		h.one("selector", "", "workloadSelector: {labels: {v: x}},"), listener, h.one("bind", "", "bind: 127.0.0.2, "), h.one("hosts", "./*", "*/b.shop.example", "~/*"),
		h.one("ingress", "", ", ingress: [{port: {number: 8080, name: in, protocol: HTTP}, defaultEndpoint: 127.0.0.1:80}]",
			", ingress: [{port: {number: 8081, name: in, protocol: GRPC}, connectionPool: {tcp: {connectTimeout: 1s}}}]", ", inboundConnectionPool: {http: {maxRetries: 1}}"),
		h.one("outside", "", ", outboundTrafficPolicy: {mode: REGISTRY_ONLY}", ", outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: b.shop.example, port: {number: 80}, subset: x}}"))
}

// step changes the world by one to three objects.
func (h *history) step(w *xdstest.World) {
	for range rapid.IntRange(1, 3).Draw(h.t, "changes") {
		if len(h.there) > 0 && rapid.IntRange(0, 3).Draw(h.t, "delete") == 0 {
			name := rapid.SampledFrom(h.there).Draw(h.t, "victim")
			w.Delete(name)
			h.there = slices.DeleteFunc(h.there, func(n string) bool { return n == name })
			continue
		}
		name, document := h.object()
		w.Apply(document)
		if !slices.Contains(h.there, name) {
			h.there = append(h.there, name)
		}
	}
}

// TestAffectedEqualsAWalk: over random histories of all kinds, a member that advances
// change by change has the same resources as a build of everything. The proxies are
// gateways and sidecars of several namespaces. Some are of one class; they share groups
// and one memo, change classes and reconnect as they go. Some differ only in their
// localities, so a group begins with the resources of another.
func TestAffectedEqualsAWalk(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	nodes := []xdstest.Node{
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.1", Labels: map[string]string{"v": "x"}},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.1.0.1", Labels: map[string]string{"v": "x"}},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.5", Locality: "r/z", SelfDiscovery: true},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.8", Locality: "r/y", SelfDiscovery: true},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.9", Interception: discovery.InterceptionRedirect, RouteDelta: true, Certified: true},
		{Type: discovery.Sidecar, Namespace: "edge", IP: "10.0.0.2", Interception: discovery.InterceptionRedirect, RouteDelta: true, Certified: true},
		{Type: discovery.Router, Namespace: "edge", IP: "10.0.0.3", Labels: map[string]string{"app": "gw"}},
		{Type: discovery.Router, Namespace: "edge", IP: "10.0.0.4", Labels: map[string]string{"app": "gw"}, Certified: true},
		{Type: discovery.Proxyless, Namespace: "shop", IP: "10.0.0.6", Labels: map[string]string{"v": "x"}},
		{Type: discovery.Proxyless, Namespace: "edge", IP: "10.0.0.7"},
	}
	pair := secrettest.New(t, time.Hour, "a.shop.example")
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: rt, pair: pair}
		mesh := xdstest.NewWorld(t)
		mesh.SetHostConsent(rapid.Bool().Draw(rt, "asks who speaks for a host"))
		all := xdstest.NewGroups(catalogue.Types(), mesh.Context)
		var members []xdstest.Member
		for _, n := range nodes {
			members = append(members, all.Join(n.Proxy(t)))
		}
		for range rapid.IntRange(1, 12).Draw(rt, "pushes") {
			h.step(mesh)
			for i, w := range members {
				switch rapid.IntRange(0, 7).Draw(rt, "how") {
				case 0, 1:
					continue // a slow proxy sees several pushes as one
				case 2:
					w.Close()
					members[i] = all.Join(w.Proxy())
				}
				followsLikeAWalk(rt, i, members[i])
			}
		}
		for _, w := range members {
			w.Close()
		}
		if n := all.Built(); n != 0 || all.Len() != 0 {
			rt.Fatalf("%d resources and %d groups are held by nobody", n, all.Len())
		}
	})
}

// followsLikeAWalk lets a member take the newest push, and compares it with a build of
// everything.
func followsLikeAWalk(rt *rapid.T, node int, w xdstest.Member) {
	w.Follow()
	want, err := w.Walked()
	if err != nil {
		rt.Fatal(err)
	}
	if d := cmp.Diff(want, w.Versions()); d != "" {
		rt.Fatalf("node %d (-walk +member):\n%s", node, d)
	}
}

// moody is a generator of one resource, whose build fails while fails is set.
type moody struct {
	fails *atomic.Bool
	built *atomic.Int32
}

func (moody) TypeURL() string { return "moody" }

func (moody) Affected(_ *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		if d.Whole {
			yield("x")
		}
	}
}

func (m moody) Build(v *mesh.View, _ string) (proto.Message, []resource.Need, error) {
	m.built.Add(1)
	if v.Service("a.example"); m.fails.Load() {
		return nil, nil, errors.New("not in the mood")
	}
	return wrapperspb.Int32(m.built.Load()), nil, nil
}

// TestWhatCouldNotBeBuiltIsBuiltLater: a failed build keeps the last resource, or none if
// there was none. The next change builds it again, whatever changes.
func TestWhatCouldNotBeBuiltIsBuiltLater(t *testing.T) {
	t.Parallel()
	m := moody{new(atomic.Bool), new(atomic.Int32)}
	types := []generate.ResourceType{{Name: "moody", Generator: m}}
	world := xdstest.NewWorld(t)
	all := xdstest.NewGroups(types, world.Context)
	w := all.Join(xdstest.Node{}.Proxy(t))
	advance := func(document string, fails bool) map[string]string {
		world.Apply(document)
		m.fails.Store(fails)
		w.Follow()
		return w.Versions()
	}
	if got := advance(xdstest.HTTPService("b", "b.example", "10.1.0.1"), true); len(got) > 0 {
		t.Errorf("built %v", got)
	}
	first := advance(xdstest.HTTPService("b", "b.example", "10.1.0.2"), false)
	if len(first) != 1 {
		t.Fatal("not built once it could be")
	}
	if got := advance(xdstest.HTTPService("a", "a.example", "10.1.0.2"), true); got["moody x"] != first["moody x"] {
		t.Errorf("a failed build left %v of %v", got, first)
	}
	if got := advance(xdstest.HTTPService("b", "b.example", "10.1.0.3"), false); got["moody x"] == first["moody x"] {
		t.Error("not built again")
	}
	n := m.built.Load()
	if advance(xdstest.HTTPService("b", "b.example", "10.1.0.4"), false); m.built.Load() != n {
		t.Error("built again for nothing")
	}
	w.Close()
	if n := all.Built(); n != 0 {
		t.Errorf("%d resources are held by nobody", n)
	}
}
