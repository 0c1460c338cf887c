package generate_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// follower keeps the resources of one node and type up to date. On a change it builds the
// names that Affected yields, and the resources for which a recorded answer changed.
type follower struct {
	node      xdstest.Node
	generator generate.Generator
	own       bool // the generator makes what is the node's own
	class     mesh.Class
	push      *mesh.PushContext
	built     map[string]*resource.Resource
	reads     map[string][]mesh.Dependency
}

func (f *follower) advance(t *testing.T, to *mesh.PushContext) (looked int) {
	t.Helper()
	class := to.ClassOf(f.node.Proxy(t))
	view := mesh.NewView(to, class)
	if f.own {
		view = view.Of(f.node.Proxy(t))
	}
	from := f.push
	if from == nil || !view.SameScope(mesh.NewView(from, f.class)) {
		from = nil
	}
	delta := mesh.Diff(from, to)
	names := map[string]bool{}
	for name := range f.generator.Affected(view, delta) {
		names[name] = true
	}
	for name, reads := range f.reads {
		for _, r := range reads {
			if view.Answer(r.Query) != r.Answer {
				names[name] = true
			}
		}
	}
	for name := range names {
		recording := view.Recording()
		r, err := generate.Build(f.generator, recording, name)
		if err != nil {
			t.Fatalf("build %s: %v", name, err)
		}
		delete(f.built, name)
		delete(f.reads, name)
		if r != nil {
			f.built[name], f.reads[name] = r, recording.Dependencies()
		}
	}
	f.class, f.push = class, to
	return len(names)
}

// walk builds everything from nothing.
func (f *follower) walk(t *testing.T) map[string]*resource.Resource {
	t.Helper()
	fresh := follower{node: f.node, generator: f.generator, built: map[string]*resource.Resource{}, reads: map[string][]mesh.Dependency{}}
	fresh.advance(t, f.push)
	return fresh.built
}

func versions(m map[string]*resource.Resource) map[string]string {
	out := map[string]string{}
	for name, r := range m {
		out[name] = r.Version
	}
	return out
}

func nodes() []xdstest.Node {
	return []xdstest.Node{
		{},
		{Namespace: "shop", Labels: map[string]string{"app": "cart"}},
		{Interception: discovery.InterceptionRedirect, Certified: true},
		{Namespace: "shop", Labels: map[string]string{"app": "cart"}, Interception: discovery.InterceptionRedirect},
		{Namespace: "shop", Labels: map[string]string{"app": "cart"}, Certified: true},
		{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"istio": "gateway"}},
	}
}

func followers() []*follower {
	var out []*follower
	for _, n := range nodes() {
		for _, g := range xdstest.Generators() {
			out = append(out, &follower{
				node: n, generator: g,
				built: map[string]*resource.Resource{}, reads: map[string][]mesh.Dependency{},
			})
		}
	}
	return out
}

// variants maps objects to the specs that each may have. In a history an object changes
// from one to another, or to none.
func variants() map[string][]string {
	other := func(kind, name, namespace string, specs ...string) (string, []string) {
		var out []string
		for _, spec := range specs {
			out = append(out, xdstest.Object(kind, namespace+"/"+name, "{"+spec+"}"))
		}
		return strings.ToLower(kind) + "/" + namespace + "/" + name, out
	}
	service := func(name, namespace, host string, specs ...string) (string, []string) {
		var out []string
		for _, spec := range specs {
			out = append(out, "hosts: ["+host+"], "+spec)
		}
		return other("ServiceEntry", name, namespace, out...)
	}
	const http, tcp = "ports: [{number: 80, name: http, protocol: HTTP}]", "ports: [{number: 80, name: tcp, protocol: TCP}, {number: 90, name: tcp2, protocol: TCP}]"
	out := map[string][]string{}
	add := func(name string, specs []string) { out[name] = specs }
	add(service("web", "default", "web.example.com",
		http+", resolution: STATIC, endpoints: [{address: 10.1.0.1, labels: {version: v1}}]",
		http+", resolution: STATIC, endpoints: [{address: 10.1.0.1, labels: {version: v1}}, {address: 10.1.0.2, labels: {version: v2}}]",
		http+", resolution: DNS, endpoints: [{address: a.example.com, labels: {version: v1}}]",
		tcp+", resolution: STATIC, endpoints: [{address: 10.1.0.1}]",
		http+", resolution: STATIC, exportTo: ['.'], endpoints: [{address: 10.1.0.3}]"))
	add(service("web2", "shop", "web.example.com", http+", resolution: STATIC, endpoints: [{address: 10.1.1.1}]"))
	add(service("db", "default", "db.example.com",
		tcp+", addresses: [10.9.0.1], resolution: STATIC, endpoints: [{address: 10.2.0.1}]",
		tcp+", resolution: NONE",
		"ports: [{number: 80, name: plain}, {number: 90, name: plain2}], addresses: [10.9.0.1], resolution: STATIC",
		"ports: [{number: 80, name: plain}, {number: 90, name: tcp, protocol: TCP}], addresses: [10.9.0.0/24], resolution: STATIC",
		http+", addresses: [10.9.0.1, 10.9.0.2], resolution: STATIC, workloadSelector: {labels: {app: db}}"))
	add(service("raw", "shop", "raw.example.com",
		"ports: [{number: 80, name: plain}], resolution: NONE",
		"ports: [{number: 90, name: plain}], resolution: NONE, exportTo: ['.']",
		tcp+", addresses: [10.9.0.1], resolution: STATIC"))
	const dynamic = ", resolution: DYNAMIC_DNS, location: MESH_EXTERNAL"
	add(service("wild", "shop", "'*.example.com'", http+dynamic, "ports: [{number: 8080, name: grpc, protocol: GRPC}, {number: 90, name: tls, protocol: TLS}]"+dynamic,
		http+dynamic+", exportTo: ['.']", "ports: [{number: 90, name: tls, protocol: TLS}]"+dynamic, http+", resolution: NONE"))
	add(service("cart", "shop", "cart.shop.internal",
		"ports: [{number: 8080, name: grpc, protocol: GRPC}, {number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.3.0.1}]"))
	add(other("WorkloadEntry", "db-1", "default", "address: 10.2.0.9, labels: {app: db}", "address: 10.2.0.9, labels: {app: other}"))
	add(other("WorkloadEntry", "me", "default", "address: 10.0.0.1, labels: {app: me}", "address: 10.0.0.1, labels: {app: db, security.istio.io/tlsMode: istio}, serviceAccount: db"))
	add(other("PeerAuthentication", "all", "default", "mtls: {mode: STRICT}", "mtls: {mode: DISABLE}", "selector: {matchLabels: {app: me}}, mtls: {mode: DISABLE}, portLevelMtls: {80: {mode: STRICT}, 7: {mode: PERMISSIVE}}"))
	add(other("PeerAuthentication", "mesh", "istio-system", "mtls: {mode: STRICT}", "mtls: {mode: DISABLE}"))
	add(other("PeerAuthentication", "db", "default", "selector: {matchLabels: {app: db}}, mtls: {mode: STRICT}", "selector: {matchLabels: {app: db}}, portLevelMtls: {80: {mode: DISABLE}}"))
	add(other("DestinationRule", "web", "default",
		"host: web.example.com, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]",
		"host: web.example.com, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}, subsets: [{name: v2, labels: {version: v2}}]",
		"host: web.example.com, trafficPolicy: {portLevelSettings: [{port: {number: 80}, loadBalancer: {consistentHash: {useSourceIp: true}}}]}, "+
			"subsets: [{name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]"))
	add(other("DestinationRule", "all", "istio-system",
		"host: '*.example.com', subsets: [{name: v3, labels: {version: v3}}]",
		"host: '*', trafficPolicy: {loadBalancer: {simple: RANDOM}}"))
	add(other("VirtualService", "web", "default",
		"hosts: [web.example.com], gateways: [mesh, edge/gw], http: [{route: [{destination: {host: web.example.com, subset: v1}, weight: 90}, {destination: {host: cart.shop.internal}, weight: 10}], mirror: {host: db.example.com}, mirrorPercentage: {value: 5}}]",
		"hosts: [web.example.com], http: [{match: [{sourceLabels: {app: cart}}], directResponse: {status: 418}}, {route: [{destination: {host: db.example.com}}]}]",
		"hosts: ['*.example.com'], gateways: [mesh], exportTo: ['.'], http: [{redirect: {uri: /x}}]"))
	add(other("VirtualService", "old", "shop",
		"hosts: [legacy.example.org, web.example.com], gateways: [mesh, edge/gw], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: cart.shop.internal, port: {number: 8080}}}]}]"))
	add(other("VirtualService", "bytes", "default",
		"hosts: [db.example.com], gateways: [edge/gw], tcp: [{match: [{port: 8002, destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: web.example.com, port: {number: 80}}}]}]",
		"hosts: [db.example.com], gateways: [mesh, edge/gw], tcp: [{match: [{gateways: [mesh]}], route: [{destination: {host: raw.example.com}}]}, "+
			"{match: [{gateways: [edge/gw]}], route: [{destination: {host: db.example.com, port: {number: 80}}, weight: 1}, {destination: {host: web.example.com, port: {number: 80}, subset: v1}, weight: 3}]}]",
		"hosts: [db.example.com], gateways: [edge/gw], exportTo: ['.'], tcp: [{route: [{destination: {host: db.example.com}}]}]"))
	add(other("VirtualService", "root", "default",
		"hosts: [web.example.com, legacy.example.org], gateways: [mesh, edge/gw], http: [{match: [{uri: {prefix: /d}}], delegate: {name: part, namespace: shop}}, {delegate: {name: streams}}, {directResponse: {status: 404}}]",
		"hosts: ['*.example.com'], http: [{match: [{sourceLabels: {app: cart}}, {uri: {exact: /d/x}}], delegate: {name: part, namespace: shop}, mirror: {host: db.example.com}}]"))
	add(other("VirtualService", "part", "shop",
		"http: [{match: [{uri: {prefix: /d/x}}], route: [{destination: {host: cart.shop.internal, port: {number: 80}}}]}, {route: [{destination: {host: raw.example.com, subset: v3}}]}]",
		"exportTo: ['.', default], http: [{match: [{gateways: [edge/gw]}, {sourceLabels: {app: me}}], route: [{destination: {host: web.example.com, subset: v1}, weight: 1}, {destination: {host: cart.shop.internal, port: {number: 80}}, weight: 1}]}]",
		"exportTo: ['.'], http: [{directResponse: {status: 418}}]",
		"hosts: [legacy.example.org], http: [{directResponse: {status: 418}}]"))
	add(service("secure", "default", "secure.example.com",
		"ports: [{number: 90, name: tls, protocol: TLS}], resolution: NONE",
		"ports: [{number: 90, name: tls, protocol: TLS}, {number: 80, name: https, protocol: HTTPS}], addresses: [10.9.0.0/24], resolution: STATIC"))
	add(other("VirtualService", "streams", "default",
		"hosts: [db.example.com], tcp: [{match: [{destinationSubnets: [10.9.0.0/28], port: 90}], route: [{destination: {host: web.example.com, port: {number: 80}}}]}, "+
			"{match: [{sourceLabels: {app: cart}}], route: [{destination: {host: cart.shop.internal, port: {number: 80}}, weight: 1}, {destination: {host: db.example.com, subset: v3}, weight: 2}]}]",
		"hosts: ['*.example.com'], tcp: [{route: [{destination: {host: raw.example.com}}]}], "+
			"tls: [{match: [{sniHosts: [secure.example.com], sourceNamespace: shop}, {sniHosts: [other.example.com, '*.x.example.com']}], route: [{destination: {host: db.example.com, port: {number: 90}}}]}]",
		"hosts: [raw.example.com, secure.example.com], exportTo: ['.'], tcp: [{route: [{destination: {host: db.example.com}}]}], "+
			"tls: [{match: [{sniHosts: [secure.example.com], destinationSubnets: [10.9.0.0/30]}], route: [{destination: {host: web.example.com}}]}], http: [{directResponse: {status: 418}}]",
		"hosts: [secure.example.com], tls: [{match: [{sniHosts: [secure.example.com]}], route: [{destination: {host: '*.example.com', port: {number: 90}}}]}]"))
	add(other("Gateway", "gw", "edge",
		"selector: {istio: gateway}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ['*']}, {port: {number: 8002, name: tcp, protocol: TCP}, hosts: ['*']}]",
		"selector: {istio: gateway}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ['web.example.com'], tls: {httpsRedirect: true}}, {port: {number: 8001, name: h2, protocol: HTTP2}, hosts: ['shop/*.org'], bind: 10.0.0.7}, "+
			"{port: {number: 8002, name: redis, protocol: REDIS}, hosts: ['default/*.example.com'], bind: 10.0.0.7}, {port: {number: 8000, name: late, protocol: TCP}, hosts: ['*']}]",
		"selector: {istio: other}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ['*']}]"))
	add(other("Sidecar", "cart", "shop",
		"workloadSelector: {labels: {app: cart}}, egress: [{hosts: ['./*']}]",
		"egress: [{port: {number: 80, protocol: HTTP, name: http}, bind: 127.0.0.9, hosts: ['*/web.example.com']}, {port: {number: 90, protocol: TCP, name: tcp}, hosts: ['default/*']}, {hosts: ['~/*']}], ingress: [{port: {number: 9090, protocol: HTTP, name: in}, defaultEndpoint: 127.0.0.1:8080}]",
		"egress: [{hosts: ['*/legacy.example.org']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
		"egress: [{port: {number: 0, protocol: HTTP, name: s}, bind: 'unix:///run/a', hosts: ['*/*']}, "+
			"{port: {number: 0, protocol: TCP, name: t}, bind: 'unix:///run/b', hosts: ['*/db.example.com', 'shop/raw.example.com']}, "+
			"{port: {number: 3128, protocol: HTTP_PROXY, name: p}, hosts: ['*/*', '~default/db.example.com']}, {bind: 127.0.0.8, hosts: ['./*']}], "+
			"outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: web.example.com, port: {number: 80}, subset: v1}}",
		"egress: [{port: {number: 80, protocol: HTTP, name: http}, hosts: ['*/web.example.com', 'default/web.example.com']}, {port: {number: 90, protocol: HTTP, name: h}, hosts: ['*/*']}]"))
	return out
}

// TestAffectedEqualsWalk: after any history, the resources that followed the changes
// equal those that are built from nothing.
func TestAffectedEqualsWalk(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			objects := variants()
			names := slices.Sorted(maps.Keys(objects))
			w := xdstest.NewWorld(t)
			switch seed % 3 {
			case 1:
				w.SetMesh("proxyHttpPort: 15080")
			case 2:
				w.SetMesh("proxyHttpPort: 15080\noutboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}")
			}
			there := map[string]bool{}
			all := followers()
			for step := range 60 {
				name := names[random.IntN(len(names))]
				choice := random.IntN(len(objects[name]) + 1)
				switch {
				case choice < len(objects[name]):
					w.Apply(objects[name][choice])
					there[name] = true
				case there[name]:
					w.Delete(name)
					delete(there, name)
				}
				if random.IntN(4) == 0 && step > 0 {
					continue // several changes in one
				}
				for _, f := range all {
					f.advance(t, w.Context())
					if diff := cmp.Diff(versions(f.walk(t)), versions(f.built)); diff != "" {
						t.Fatalf("step %d (%s, variant %d): %s of %s %s: walked -, followed +\n%s",
							step, name, choice, f.generator.TypeURL(), f.node.Type, f.node.Namespace, diff)
					}
				}
			}
		})
	}
}

// A change of one row makes the generator look at the same number of resources, however
// large the mesh is.
func TestLookedAtFollowsTheChange(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	const format = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%[1]d}
spec:
  hosts: [s%[1]d.example.com]
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.1.0.%[3]d}]
`
	looked := func(size int) []int {
		var documents []string
		for i := range size {
			documents = append(documents, fmt.Sprintf(format, i, 1000+i, 1))
		}
		w := xdstest.NewWorld(t, strings.Join(documents, "---\n"))
		all := followers()
		var out []int
		for _, f := range all {
			f.advance(t, w.Context())
		}
		changes := []string{
			fmt.Sprintf(format, 0, 1000, 2), // endpoints only
			fmt.Sprintf(format, 0, 999, 2),  // a port
			fmt.Sprintf(format, size, 998, 1),
		}
		for _, change := range changes {
			w.Apply(change)
			for _, f := range all {
				out = append(out, f.advance(t, w.Context()))
			}
		}
		return out
	}
	if diff := cmp.Diff(looked(10), looked(200)); diff != "" {
		t.Errorf("resources looked at, in a mesh of 10 services - and of 200 +:\n%s", diff)
	}
}

// If a Sidecar imports other services than before, the generator looks only at what the
// Sidecar sees, however large the mesh is.
func TestASidecarLooksAtWhatItSees(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	looked := func(size int) []int {
		documents := []string{sidecarOf(0)}
		for i := range size {
			host := fmt.Sprintf("s%d.example.com", i)
			documents = append(documents, xdstest.HTTPService(fmt.Sprint("s", i), host, "10.1.0.1"),
				xdstest.Object("VirtualService", fmt.Sprint("default/s", i), fmt.Sprintf("{hosts: [%s], http: [{route: [{destination: {host: %s}}]}]}", host, host)),
				xdstest.Object("DestinationRule", fmt.Sprint("default/s", i), fmt.Sprintf("{host: %s, subsets: [{name: v1}]}", host)))
		}
		w := xdstest.NewWorld(t, documents...)
		all := followers()
		var out []int
		for _, f := range all {
			f.advance(t, w.Context())
		}
		w.Apply(sidecarOf(1))
		for _, f := range all {
			if looked := f.advance(t, w.Context()); f.node.Namespace == "" {
				out = append(out, looked)
			}
		}
		return out
	}
	if diff := cmp.Diff(looked(10), looked(200)); diff != "" {
		t.Errorf("resources looked at, in a mesh of 10 services - and of 200 +:\n%s", diff)
	}
}

// sidecarOf is a Sidecar of the namespace default that sees one service.
func sidecarOf(i int) string {
	return xdstest.Object("Sidecar", "default/one", fmt.Sprintf("{egress: [{hosts: ['*/s%d.example.com']}]}", i))
}

// A changed endpoint concerns only load assignments.
func TestEndpointsConcernAssignmentsOnly(t *testing.T) {
	t.Parallel()
	web := func(address string) string { return xdstest.HTTPService("web", "web.example.com", address) }
	w := xdstest.NewWorld(t, web("10.1.0.1"))
	all := followers()
	for _, f := range all {
		f.advance(t, w.Context())
	}
	w.Apply(web("10.1.0.2"))
	for _, f := range all {
		looked := f.advance(t, w.Context())
		if isEndpoint := strings.HasSuffix(f.generator.TypeURL(), "ClusterLoadAssignment"); isEndpoint != (looked == 1) {
			t.Errorf("%s looked at %d resources", f.generator.TypeURL(), looked)
		}
	}
}

// Equal worlds give equal bytes, every time.
func TestBuildsAreEqual(t *testing.T) {
	t.Parallel()
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(variants())) {
		documents = append(documents, variants()[name][0])
	}
	var first []map[string]string
	for round := range 5 {
		w := xdstest.NewWorld(t, documents...)
		var got []map[string]string
		for _, f := range followers() {
			f.advance(t, w.Context())
			got = append(got, versions(f.built))
		}
		if round == 0 {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Fatalf("round %d:\n%s", round, diff)
		}
	}
}

// No name that a client may request makes a generator fail or answer with another
// resource.
func FuzzBuildAnyName(f *testing.F) {
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(variants())) {
		documents = append(documents, variants()[name][min(1, len(variants()[name])-1)])
	}
	w := xdstest.NewWorld(f, documents...)
	for _, name := range []string{
		"", "|||", "outbound|80||web.example.com", "outbound|080||web.example.com", "outbound|80|v1|web.example.com",
		"outbound_.80_.v1_.web.example.com", "inbound|9090||", "inbound|9090|v1|x", "BlackHoleCluster",
		"127.0.0.1_80", "127.0.0.1_080", "127.0.0.9_80", "_", "_80", "10.0.0.1_9090", "80", "0", "-1", "65536", "080",
		"http.8000", "http.8001.10.0.0.7", "http.", "https.443.x.y.z", "outbound|80||*", "outbound|80|*|/", "\x00", "\xff",
	} {
		f.Add(name)
	}
	views := make([]*mesh.View, 0, 3)
	for _, n := range nodes() {
		views = append(views, w.View(n))
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, g := range xdstest.Generators() {
			for _, v := range views {
				m, _, err := g.Build(v.Recording(), name)
				if err != nil {
					t.Errorf("build %q: %v", name, err)
				}
				if m != nil && nameOf(m) != name {
					t.Errorf("build %q made %q", name, nameOf(m))
				}
			}
		}
	})
}

// nameOf returns the name in the message itself.
func nameOf(m proto.Message) string {
	if a, ok := m.(resource.Encoded); ok {
		m = a.Message
	}
	if a, ok := m.(*endpointv3.ClusterLoadAssignment); ok {
		return a.GetClusterName()
	}
	return m.(interface{ GetName() string }).GetName()
}
