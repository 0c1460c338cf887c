package route_test

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

var (
	web     = xdstest.HTTPService("web", "web.example.com", "10.1.0.1")
	reviews = xdstest.HTTPService("reviews", "reviews.example.com", "10.2.0.1")
	cart    = xdstest.Object("ServiceEntry", "cart", "{hosts: [cart.example.com], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}]}")
	routed  = xdstest.Object("VirtualService", "web", `{hosts: [web.example.com, legacy.example.org], gateways: [mesh, gw], http: [
		{match: [{uri: {prefix: /a}}], route: [{destination: {host: reviews.example.com}}]},
		{route: [{destination: {host: web.example.com}, weight: 1}, {destination: {host: cart.example.com}, weight: 3}]}]}`)
	gateway = xdstest.Object("Gateway", "gw", "{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")
	empty   = xdstest.Object("Gateway", "gw", "{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")
)

var proxies = map[string]xdstest.Node{"sidecar": {}, "router": {Type: discovery.Router}}

// byType returns the messages of type M among the resources, by name.
func byType[M proto.Message](t *testing.T, resources []*resource.Resource) map[string]M {
	t.Helper()
	out := map[string]M{}
	for _, r := range resources {
		message, err := r.Body.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := message.(M); ok {
			out[r.Name] = m
		}
	}
	return out
}

func build(t *testing.T, w *xdstest.World, n xdstest.Node) []*resource.Resource {
	t.Helper()
	return w.Build(n, route.Generator{}, virtualhost.Generator{})
}

// A proxy that takes the hosts by delta ends up with the same routes as one that takes
// them in the route configuration.
func TestHostsByDeltaAreTheWholeTable(t *testing.T) {
	t.Parallel()
	for world, documents := range map[string][]string{
		"empty": {}, "no hosts": {empty}, "hosts": {web, reviews, cart, routed, gateway},
		"a host that takes all": {web, gateway, xdstest.Object("VirtualService", "all", "{hosts: ['*'], gateways: [gw], http: [{route: [{destination: {host: web.example.com}}]}]}")},
	} {
		w := xdstest.NewWorld(t, documents...)
		for kind, node := range proxies {
			whole := byType[*routev3.RouteConfiguration](t, build(t, w, node))
			node.RouteDelta = true
			resources := build(t, w, node)
			delta := byType[*routev3.RouteConfiguration](t, resources)
			for name, host := range byType[*routev3.VirtualHost](t, resources) {
				config, short, ok := route.SplitHostName(name)
				if !ok || host.GetName() != name {
					t.Fatalf("%s, %s: virtual host %s is named %s", world, kind, name, host.GetName())
				}
				if into := delta[config]; into != nil {
					host.Name = short
					into.VirtualHosts = append(into.VirtualHosts, host)
				}
			}
			for name, config := range delta {
				wants := len(whole[name].GetVirtualHosts()) > 1 || strings.HasPrefix(name, "http.") && len(whole[name].GetVirtualHosts()[0].GetRoutes()) > 0
				checkSource(t, config, wants)
				config.Vhds = nil
			}
			if diff := gocmp.Diff(whole, delta, protocmp.Transform(), protocmp.SortRepeated(func(a, b *routev3.VirtualHost) bool {
				return cmp.Compare(a.GetName(), b.GetName()) < 0
			})); diff != "" {
				t.Errorf("%s, %s: the whole table -, the sum of its parts +:\n%s", world, kind, diff)
			}
		}
	}
}

// checkSource: hosts come by delta if there are some, and a proxy does not wait for them
// forever.
func checkSource(t *testing.T, config *routev3.RouteConfiguration, wants bool) {
	t.Helper()
	source := config.GetVhds().GetConfigSource()
	if got := source.GetAds() != nil; got != wants {
		t.Errorf("%s: virtual hosts by delta: %v", config.GetName(), got)
	}
	if timeout := source.GetInitialFetchTimeout().AsDuration(); wants && timeout <= 0 {
		t.Errorf("%s: waits %s for virtual hosts", config.GetName(), timeout)
	}
}

// The composed bytes equal those of the encoded message, with the fields in order.
func TestComposedBytesAreCanonical(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, web, reviews, cart, routed, gateway)
	for kind, node := range proxies {
		for _, delta := range []bool{false, true} {
			node.RouteDelta = delta
			for _, r := range w.Build(node, route.Generator{}, virtualhost.Generator{}) {
				message, err := r.Body.UnmarshalNew()
				if err != nil {
					t.Fatal(err)
				}
				want, err := resource.New(r.Name, message)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(want.Body.GetValue(), r.Body.GetValue()) {
					t.Errorf("%s, delta %v: %s: the bytes are not canonical", kind, delta, r.Name)
				}
			}
		}
	}
}

// A composed route configuration changes its version with any of its hosts, and names the
// clusters of all. One whose hosts come by delta does not depend on them.
func TestVersionsAndRefsOfTables(t *testing.T) {
	t.Parallel()
	for _, delta := range []bool{false, true} {
		w := xdstest.NewWorld(t, web, reviews, cart)
		table := func() *resource.Resource {
			for _, r := range build(t, w, xdstest.Node{RouteDelta: delta}) {
				if r.Name == "80" {
					return r
				}
			}
			t.Fatal("no table")
			return nil
		}
		before := table()
		w.Apply(routed)
		after := table()
		if changed := before.Version != after.Version; changed == delta {
			t.Errorf("hosts by delta %v: the table changed with a host: %v", delta, changed)
		}
		want := []string{"PassthroughCluster"}
		if !delta {
			want = append(want, "outbound|80||reviews.example.com", "outbound|80||web.example.com", "outbound|80||cart.example.com")
			want[3] = "outbound|8080||cart.example.com"
		}
		got := slices.Compact(slices.Sorted(after.EachRef))
		slices.Sort(want)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("hosts by delta %v: refers to %s", delta, diff)
		}
	}
}

// Names of route configurations are what EnvoyFilters match.
func TestGatewayRouteNames(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("Gateway", "gw", `{servers: [
		{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example.com]},
		{port: {number: 80, name: h2, protocol: HTTP2}, hosts: [b.example.com]},
		{port: {number: 80, name: local, protocol: HTTP}, bind: 127.0.0.1, hosts: ['*']},
		{port: {number: 443, name: tls, protocol: HTTPS}, tls: {mode: PASSTHROUGH}, hosts: ['*']},
		{port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]}`))
	s := w.Simulate(xdstest.Node{Type: discovery.Router})
	if diff := gocmp.Diff([]string{"http.80", "http.80.127.0.0.1"}, s.Routes()); diff != "" {
		t.Error(diff)
	}
	if got := s.Route("http.80").GetVirtualHosts()[0].GetName(); got != "blackhole:80" {
		t.Errorf("the virtual host of nothing is %s", got)
	}
}

// A name that a proxy waits for, but that is unknown, is answered with an empty resource.
func TestEmpty(t *testing.T) {
	t.Parallel()
	r, err := generate.Empty(route.Generator{}, "404")
	if err != nil || r.Name != "404" {
		t.Fatalf("%v, %v", r, err)
	}
	s, err := simulate.New(append(xdstest.NewWorld(t).Build(xdstest.Node{Type: discovery.Router}), r))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Route("404").GetVirtualHosts()) != 0 {
		t.Error("the empty answer has virtual hosts")
	}
}

// helloPatch adds a virtual host to every route configuration.
type helloPatch struct{}

func (helloPatch) Affected(*mesh.View, mesh.Delta) iter.Seq[string] {
	return func(func(string) bool) {}
}

func (helloPatch) Apply(_ *mesh.View, _ string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	if message == nil {
		return nil, nil, nil
	}
	config := proto.CloneOf(message.(*routev3.RouteConfiguration))
	config.VirtualHosts = append(config.VirtualHosts, envoy.VirtualHost(envoy.VirtualHostOptions{Name: "hello", Domains: []string{"hello.example"}}))
	return config, needs, nil
}

// A virtual host that a patch adds to a route configuration stays beside the composed
// hosts. They still replace a gateway's black hole.
func TestPatchedRoutesKeepAllHosts(t *testing.T) {
	t.Parallel()
	routes := generate.ResourceType{Generator: route.Generator{}}.Patched(helloPatch{}).Generator
	for _, tc := range []struct {
		name      string
		node      xdstest.Node
		documents []string
		want      string
	}{
		{"sidecar", xdstest.Node{}, []string{web}, "web.example.com:80 allow_any hello"},
		{"sidecar by delta", xdstest.Node{RouteDelta: true}, []string{web}, "allow_any hello"},
		{"gateway", xdstest.Node{Type: discovery.Router}, []string{web, routed, gateway}, "legacy.example.org:80 web.example.com:80 hello"},
		{"gateway by delta", xdstest.Node{Type: discovery.Router, RouteDelta: true}, []string{web, routed, gateway}, "hello"},
		{"gateway without hosts", xdstest.Node{Type: discovery.Router}, []string{gateway}, "blackhole:80 hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tc.documents...)
			var names []string
			for name, config := range byType[*routev3.RouteConfiguration](t, w.Build(tc.node, routes, virtualhost.Generator{})) {
				if name != "80" && name != "http.80" {
					continue
				}
				for _, h := range config.GetVirtualHosts() {
					names = append(names, h.GetName())
				}
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("virtual hosts %q, want %q", got, tc.want)
			}
		})
	}
}
