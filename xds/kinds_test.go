package xds_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/xdstest"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// described is an object of the mesh of TestEachKindOfChangeCostsTheSameInAnyMesh.
type described struct{ kind, name, spec string }

func (d described) object(t tb) *config.Config {
	t.Helper()
	c := objectOf(t, d.kind, d.name, d.spec, 1)
	if d.kind == "WorkloadEntry" {
		c.Annotations = map[string]string{serviceentry.HealthChecksAnnotation: "true"}
	}
	if _, err := schema.Pilot().Kind(c.GroupVersionKind).Validate(c); err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
	return c
}

// A service of each resolution, what routes to them, and what proxies see of them.
const (
	webEntry   = `{hosts: [web.test], addresses: [%s], ports: [{number: %s, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.250.0.1, labels: {version: v1}, locality: eu/a}, {address: %s, weight: %s, labels: {version: v2}, locality: %s}]}`
	dbEntry    = `{hosts: [db.test], addresses: [10.250.1.1], ports: [{number: 5000, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: 10.250.0.3, labels: {version: v1}}, {address: 10.250.0.4, labels: {version: v2}}]}`
	vaultEntry = `{hosts: [vault.test, safe.test], ports: [{number: 5443, name: tls, protocol: TLS}], resolution: STATIC, endpoints: [{address: 10.250.0.5}]}`
	dnsEntry   = `{hosts: [dns.test], ports: [{number: 8001, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: %s}]}`
	roundEntry = `{hosts: [round.test], ports: [{number: 8002, name: http, protocol: HTTP}], resolution: DNS_ROUND_ROBIN, endpoints: [{address: %s}]}`
	openEntry  = `{hosts: [open.test], ports: [{number: %s, name: tcp, protocol: TCP}], resolution: NONE}`
	wildEntry  = `{hosts: ["*.wild.test"], ports: [{number: %s, name: http, protocol: HTTP}], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL}`
	poolEntry  = `{hosts: [pool.test], ports: [{number: 8004, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: pool}}}`
	workload   = `{address: 10.250.0.9, labels: {app: pool, version: %s}, locality: %s, weight: %s}`
	webRoutes  = `{hosts: [web.test], gateways: [mesh, gw], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: web.test, subset: v1}, weight: %s}, {destination: {host: dns.test}, weight: 5}]%s}]}`
	dbRoutes   = `{hosts: [db.test], tcp: [{match: [{port: 5000}], route: [{destination: {host: db.test, subset: v1}, weight: %s}, {destination: {host: db.test, subset: v2}, weight: 5}]}]}`
	gwRoutes   = `{hosts: [bytes.test], gateways: [gw], tcp: [{match: [{port: 9000}], route: [{destination: {host: db.test, subset: v1}, weight: %s}, {destination: {host: db.test}, weight: 5}]}]}`
	tlsRoutes  = `{hosts: [vault.test, safe.test], tls: [{match: [{sniHosts: [%s]}], route: [{destination: {host: db.test}}]}, {match: [{sniHosts: [vault.test]}], route: [{destination: {host: vault.test}}]}]}`
	webRule    = `{host: web.test, trafficPolicy: {connectionPool: {tcp: {maxConnections: 100}}%s}, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}`
	dbRule     = `{host: db.test, trafficPolicy: {%s}, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}`
	someRule   = `{host: round.test, workloadSelector: {matchLabels: {app: plain}}, trafficPolicy: {connectionPool: {tcp: {maxConnections: %s}}}}`
	poolRule   = `{host: pool.test, trafficPolicy: {outlierDetection: {}, loadBalancer: {localityLbSetting: {enabled: true, failoverPriority: [topology.kubernetes.io/region, version]}},
		portLevelSettings: [{port: {number: 1}, loadBalancer: {zoneAwareLbSetting: {}}}]}}`
	gwServers = `{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['%s']}, {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*"]}]}`
	scopedBy  = `{egress: [{port: {number: 0, name: a, protocol: TCP}, bind: "unix:///run/a", hosts: [shop/%s]}, {port: {number: 8000, name: http, protocol: HTTP}, hosts: [shop/web.test%s]}, {hosts: ["shop/*"%s]}],
		outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: pool.test, port: {number: 8004}%s}}}`
)

func f(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// kindsOfMesh returns the objects with these specs.
func kindsOfMesh() []described {
	return []described{
		{"ServiceEntry", "shop/web", f(webEntry, "10.250.1.2", "8000", "10.250.0.2", "1", "us/b")}, {"ServiceEntry", "shop/db", dbEntry}, {"ServiceEntry", "shop/vault", vaultEntry},
		{"ServiceEntry", "shop/dns", f(dnsEntry, "a.test")}, {"ServiceEntry", "shop/round", f(roundEntry, "a.test")},
		{"ServiceEntry", "shop/open", f(openEntry, "8003")}, {"ServiceEntry", "shop/wild", f(wildEntry, "8005")}, {"ServiceEntry", "shop/pool", poolEntry},
		{"WorkloadEntry", "shop/vm", f(workload, "v1", "eu/a", "1")},
		{"VirtualService", "shop/web", f(webRoutes, "1", "")}, {"VirtualService", "shop/db", f(dbRoutes, "1")}, {"VirtualService", "shop/bytes", f(gwRoutes, "1")}, {"VirtualService", "shop/tls", f(tlsRoutes, "safe.test")},
		{"DestinationRule", "shop/web", f(webRule, "")}, {"DestinationRule", "shop/db", f(dbRule, "connectionPool: {tcp: {maxConnections: 1}}")}, {"DestinationRule", "shop/some", f(someRule, "1")}, {"DestinationRule", "shop/pool", poolRule},
		{"Gateway", "shop/gw", f(gwServers, "*")},
		{"Sidecar", "scoped/default", f(scopedBy, "db.test", "", "", "")},
	}
}

// kindsOfChange returns the changes, by name. Each is another form of one of the objects of
// kindsOfMesh.
func kindsOfChange() map[string]described {
	rule := func(policy string) described { return described{"DestinationRule", "shop/web", f(webRule, policy)} }
	byBytes := func(policy string) described { return described{"DestinationRule", "shop/db", f(dbRule, policy)} }
	routes := func(weight, more string) described {
		return described{"VirtualService", "shop/web", f(webRoutes, weight, more)}
	}
	web := func(address, port, endpoint, weight, locality string) described {
		return described{"ServiceEntry", "shop/web", f(webEntry, address, port, endpoint, weight, locality)}
	}
	entry := func(name, format, value string) described {
		return described{"ServiceEntry", "shop/" + name, f(format, value)}
	}
	return map[string]described{
		"http weights":                 routes("2", ""),
		"http mirror":                  routes("1", ", mirror: {host: pool.test}, mirrorPercentage: {value: 5}"),
		"http cors":                    routes("1", ", corsPolicy: {allowOrigins: [{exact: 'https://a.test'}]}"),
		"tcp routes":                   {"VirtualService", "shop/db", f(dbRoutes, "2")},
		"tcp routes of a gateway":      {"VirtualService", "shop/bytes", f(gwRoutes, "2")},
		"tls routes":                   {"VirtualService", "shop/tls", f(tlsRoutes, "safe.test, vault.test")},
		"rule: pools":                  byBytes("connectionPool: {tcp: {maxConnections: 2, idleTimeout: 5s}}"),
		"rule: outliers":               rule(", outlierDetection: {consecutive5xxErrors: 3}"),
		"rule: zones":                  rule(", loadBalancer: {zoneAwareLbSetting: {failover: [{from: eu, to: us}]}}"),
		"rule: localities":             rule(", outlierDetection: {}, loadBalancer: {localityLbSetting: {enabled: true, distribute: [{from: eu/*, to: {eu/*: 80, us/*: 20}}]}}"),
		"rule: consistent hash":        rule(", loadBalancer: {consistentHash: {httpHeaderName: x-user}}"),
		"rule: a port":                 rule(", portLevelSettings: [{port: {number: 8000}, loadBalancer: {simple: RANDOM}}]"),
		"rule: for some clients":       {"DestinationRule", "shop/some", f(someRule, "2")},
		"rule: tunnel":                 byBytes("tunnel: {targetHost: far.test, targetPort: 1}"),
		"rule: source address":         byBytes("loadBalancer: {consistentHash: {useSourceIp: true}}"),
		"service: an endpoint":         web("10.250.1.2", "8000", "10.250.0.22", "1", "us/b"),
		"service: weight of one":       web("10.250.1.2", "8000", "10.250.0.2", "2", "us/b"),
		"service: locality of one":     web("10.250.1.2", "8000", "10.250.0.2", "1", "us/c"),
		"service: its address":         web("10.250.1.3", "8000", "10.250.0.2", "1", "us/b"),
		"service: its port":            web("10.250.1.2", "8006", "10.250.0.2", "1", "us/b"),
		"service of DNS":               entry("dns", dnsEntry, "b.test"),
		"service of DNS in turn":       entry("round", roundEntry, "b.test"),
		"service without endpoints":    entry("open", openEntry, "8007"),
		"service of a pattern":         entry("wild", wildEntry, "8008"),
		"workload: labels":             {"WorkloadEntry", "shop/vm", f(workload, "v2", "eu/a", "1")},
		"workload: locality":           {"WorkloadEntry", "shop/vm", f(workload, "v1", "us/b", "1")},
		"workload: weight":             {"WorkloadEntry", "shop/vm", f(workload, "v1", "eu/a", "2")},
		"Gateway":                      {"Gateway", "shop/gw", f(gwServers, "dns.test")},
		"Sidecar: a socket":            {"Sidecar", "scoped/default", f(scopedBy, "open.test", "", "", "")},
		"Sidecar: a listener":          {"Sidecar", "scoped/default", f(scopedBy, "db.test", ", shop/pool.test", ", ~shop/pool.test", "")},
		"Sidecar: all listeners":       {"Sidecar", "scoped/default", f(scopedBy, "db.test", "", ", ~shop/dns.test", "")},
		"Sidecar: where the rest goes": {"Sidecar", "scoped/default", f(scopedBy, "db.test", "", "", ", subset: v1")},
	}
}

// bulk returns objects of the same kinds for a tenth of the services of a mesh. The proxies
// of the test see these objects, but have nothing else to do with them.
func bulk(m refmesh.Mesh) []described {
	var out []described
	for i := 0; i < m.Services; i += 10 {
		h, n, namespace := refmesh.Host(i), refmesh.Name(i), refmesh.Namespace(i)
		name := func(kind string) string { return namespace + "/" + kind + n }
		out = append(out,
			described{"VirtualService", name("tcp"), f("{hosts: [%s], gateways: [mesh, gw%s], tcp: [{match: [{port: %d}, {port: %d}], route: [{destination: {host: %s, port: {number: %d}}}]}]}", h, n, refmesh.TCPPort, 10_000+i, h, refmesh.TCPPort)},
			described{"Gateway", name("gw"), f("{selector: {app: gw%s}, servers: [{port: {number: %d, name: tcp, protocol: TCP}, hosts: ['*']}]}", n, 10_000+i)},
			described{"ServiceEntry", name("tls"), f("{hosts: [tls.%s], addresses: [10.251.%d.%d], ports: [{number: 5444, name: tls, protocol: TLS}], resolution: DNS, endpoints: [{address: %s}]}", h, i/10/250, i/10%250+1, h)},
			described{"VirtualService", name("tls"), f("{hosts: [tls.%s], tls: [{match: [{sniHosts: [tls.%s]}], route: [{destination: {host: %s, port: {number: %d}}}]}]}", h, h, h, refmesh.TCPPort)},
			described{"WorkloadEntry", name("vm"), f("{address: 10.252.%d.%d, labels: {app: none}, locality: eu/a}", i/10/250, i/10%250+1)})
	}
	return out
}

// newKinds makes a mesh of all kinds of objects, and a proxy of each kind.
func newKinds(t *testing.T, services int) *reference {
	r := newReferenceOf(t, refmesh.Mesh{Services: services, Localities: 4, LabelSets: 10}, 0, true)
	for _, d := range append(bulk(r.mesh), kindsOfMesh()...) {
		r.set(d.object(t))
	}
	r.commit()
	r.replica.do(func() { r.entries.SetHealth("shop", "vm", true) })
	r.push()
	for i, n := range []xdstest.Node{
		{Type: discovery.Router, Labels: map[string]string{"app": "gw"}}, {Labels: map[string]string{"app": "plain"}, Locality: "eu/a/x", SelfDiscovery: true},
		{Interception: discovery.InterceptionRedirect, DNSCapture: true}, {Type: discovery.Proxyless}, {Namespace: "scoped", Locality: "us/b"},
	} {
		if n.Namespace == "" {
			n.Namespace = "shop"
		}
		n.IP, n.RouteDelta = fmt.Sprint("10.250.9.", i), n.Type != discovery.Proxyless
		r.join(n.Proxy(t))
	}
	r.sync()
	r.judge()
	return r
}

// toggle returns a function that makes a change and takes it back, in turn. The function
// returns what sync does.
func (r *reference) toggle(change func(odd bool)) func() map[string]int {
	odd := false
	return func() map[string]int {
		odd = !odd
		change(odd)
		r.push()
		lacking := r.sync()
		r.judge()
		return lacking
	}
}

// changesOf returns the changes of a mesh, by name.
func changesOf(t *testing.T, r *reference) map[string]func(odd bool) {
	out := map[string]func(odd bool){"workload: health": func(odd bool) {
		r.replica.do(func() { r.entries.SetHealth("shop", "vm", !odd) })
	}}
	were := map[string]*config.Config{}
	for _, d := range kindsOfMesh() {
		were[d.kind+d.name] = d.object(t)
	}
	for name, d := range kindsOfChange() {
		was, is := were[d.kind+d.name], d.object(t)
		out[name] = func(odd bool) {
			object := was
			if odd {
				object = is
			}
			r.set(object)
			r.commit()
		}
	}
	return out
}

// TestEachKindOfChangeCostsTheSameInAnyMesh changes one object of each kind that routes
// traffic, and counts allocations, from the object to the verdicts and to the resources of
// proxies of each kind. They are at most twice those in a mesh ten times smaller, or a
// hundred times, and as many resources are sent.
func TestEachKindOfChangeCostsTheSameInAnyMesh(t *testing.T) {
	services := longtest.Histories(1_000, 10_000)
	small, large := newKinds(t, 100), newKinds(t, services)
	inSmall, inLarge := changesOf(t, small), changesOf(t, large)
	for _, name := range slices.Sorted(maps.Keys(inSmall)) {
		one, other := small.toggle(inSmall[name]), large.toggle(inLarge[name])
		want, got := one(), other()
		if d := cmp.Diff(want, got); d != "" || len(want) == 0 {
			t.Errorf("%s: resources that the proxies lack, %v (-among few +among many):\n%s", name, want, d)
		}
		few := testing.AllocsPerRun(5, func() { one() })
		many := testing.AllocsPerRun(5, func() { other() })
		if one, other := one(), other(); len(one) == 0 || len(other) == 0 { // an even number of steps in all
			t.Errorf("%s: nothing is taken back", name)
		}
		t.Logf("%s: %.0f allocations among 100 services, %.0f among %d; sent %v", name, few, many, services, want)
		if many > 2*few {
			t.Errorf("%s: %.0f allocations among %d services, %.0f among 100", name, many, services, few)
		}
	}
}
