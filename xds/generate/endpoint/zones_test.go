package endpoint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestZones: if proxies balance load between zones, the endpoints of their region come
// first. Their own zone has no higher priority.
func TestZones(t *testing.T) {
	t.Parallel()
	eu := xdstest.Node{Locality: "eu/a/x", Labels: map[string]string{"rack": "2"}}
	region := []string{".0.1 p0 w1", ".0.2 p0 w3", ".0.3 p0 w1", ".0.4 p1 w1", ".0.5 p1 w1"}
	same := []string{".0.1 p0 w1", ".0.2 p0 w3", ".0.3 p0 w1", ".0.4 p0 w1", ".0.5 p0 w1"}
	near := []string{".0.1 p0 w1", ".0.2 p1 w3", ".0.3 p2 w1", ".0.4 p3 w1", ".0.5 p3 w1"}
	to := []string{".0.1 p0 w1", ".0.2 p0 w3", ".0.3 p0 w1", ".0.4 p1 w1", ".0.5 p2 w1"}
	for name, c := range map[string]struct {
		node         xdstest.Node
		mesh, policy string
		want         []string
		// zones is what a proxy with SelfDiscovery gets: 100, 0 or none percent, and the
		// minimum cluster size.
		zones string
	}{
		"of a rule":           {node: eu, policy: "{loadBalancer: {zoneAwareLbSetting: {}}}", want: region, zones: "100 0"},
		"with a size":         {node: eu, policy: "{outlierDetection: {}, loadBalancer: {zoneAwareLbSetting: {enabled: true, minClusterSize: 3}}}", want: region, zones: "100 3"},
		"of no region":        {policy: "{loadBalancer: {zoneAwareLbSetting: {}}}", want: same, zones: "100 0"},
		"with a failover":     {node: eu, policy: "{loadBalancer: {zoneAwareLbSetting: {failover: [{from: eu, to: us}]}}}", want: to, zones: "100 0"},
		"off":                 {node: eu, policy: "{loadBalancer: {zoneAwareLbSetting: {enabled: false, minClusterSize: 3}}}", want: same, zones: "0 0"},
		"off, with a failure": {node: eu, policy: "{outlierDetection: {}, loadBalancer: {zoneAwareLbSetting: {enabled: false}}}", want: near, zones: "0 0"},
		"with labels": {node: eu, policy: "{loadBalancer: {zoneAwareLbSetting: {failoverPriority: [version=v1], failover: [{from: eu, to: asia}]}}}",
			want: []string{".0.1 p2 w1", ".0.2 p2 w3", ".0.3 p0 w1", ".0.4 p3 w1", ".0.5 p1 w1"}, zones: "100 0"},
		"with a label of the proxy": {node: eu, policy: "{loadBalancer: {zoneAwareLbSetting: {failoverPriority: [rack]}}}",
			want: []string{".0.1 p1 w1", ".0.2 p0 w3", ".0.3 p1 w1", ".0.4 p2 w1", ".0.5 p2 w1"}, zones: "100 0"},
		"none":                          {node: eu, policy: "{loadBalancer: {simple: RANDOM}}", want: same, zones: "0 0"},
		"of the mesh":                   {node: eu, mesh: "{}", policy: "{loadBalancer: {simple: RANDOM}}", want: region, zones: "100 0"},
		"of the mesh, off":              {node: eu, mesh: "{enabled: false}", policy: "{outlierDetection: {}}", want: near, zones: "0 0"},
		"of the mesh, off in the rule":  {node: eu, mesh: "{}", policy: "{loadBalancer: {zoneAwareLbSetting: {enabled: false}}}", want: same, zones: "0 0"},
		"of the mesh, and localities":   {node: eu, mesh: "{minClusterSize: 2}", policy: "{outlierDetection: {}, loadBalancer: {localityLbSetting: {enabled: true}}}", want: near, zones: "0 0"},
		"of the mesh, and none of both": {node: eu, mesh: "{minClusterSize: 2}", policy: "{loadBalancer: {localityLbSetting: {enabled: false}}}", want: same, zones: "0 0"},
		"shares": {node: eu, mesh: "{}", policy: "{loadBalancer: {localityLbSetting: {distribute: [{from: us, to: {us: 100}}]}}}",
			want: same, zones: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, resolution := range []string{"STATIC", "DNS"} {
				w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "a", fmt.Sprintf(zones, resolution)),
					xdstest.Object("DestinationRule", "a", "{host: a.example.com, trafficPolicy: "+c.policy+"}"))
				if c.mesh != "" {
					w.SetMesh("zoneAwareLbSetting: " + c.mesh)
				}
				for kind, discovers := range map[discovery.ProxyType]bool{discovery.Sidecar: true, discovery.Router: true, "": false} {
					n := c.node
					n.Type, n.SelfDiscovery = kind, discovers
					s := w.Simulate(n)
					if diff := gocmp.Diff(c.want, assigned(s)); diff != "" {
						t.Errorf("%s, %q: %s", resolution, kind, diff)
					}
					got, want := "none", c.zones
					if z := s.Cluster(zonesCluster).GetCommonLbConfig().GetZoneAwareLbConfig(); z != nil {
						got = fmt.Sprint(z.GetRoutingEnabled().GetValue(), z.GetMinClusterSize().GetValue())
					}
					if !discovers {
						want = "none"
					}
					if got != want {
						t.Errorf("%s, %q: zones %s, want %s", resolution, kind, got, want)
					}
				}
			}
		})
	}
}

// Proxies of several zones share a class if each balances load between zones itself.
func TestZonesAreOneClass(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("DestinationRule", "a", "{host: a.example.com, trafficPolicy: {loadBalancer: {zoneAwareLbSetting: {}}}}"))
	at := func(locality string) mesh.Class { return w.Class(xdstest.Node{Locality: locality}) }
	if at("eu/a") != at("eu/b/c") || at("eu/a") == at("us/a") {
		t.Errorf("classes: %v, %v, %v", at("eu/a"), at("eu/b/c"), at("us/a"))
	}
	w = xdstest.NewWorld(t)
	w.SetMesh("zoneAwareLbSetting: {failoverPriority: [rack]}")
	if at("eu/a") != at("eu/b/c") || at("eu/a") == at("us/a") {
		t.Errorf("classes by the mesh: %v, %v, %v", at("eu/a"), at("eu/b/c"), at("us/a"))
	}
}

// like returns the local cluster of a node: the addresses by locality, or "none".
func like(t *testing.T, w *xdstest.World, n xdstest.Node) string {
	t.Helper()
	assignment := w.Simulate(n).Assignment(names.LocalCluster)
	if assignment == nil {
		return "none"
	}
	var out []string
	for _, l := range assignment.GetEndpoints() {
		out = append(out, l.GetLocality().GetRegion()+"/"+l.GetLocality().GetZone()+":")
		for _, e := range l.GetLbEndpoints() {
			out = append(out, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
	return strings.Join(out, " ")
}

// TestLocalCluster: the local cluster comes from the oldest service of the proxy's
// namespace, in the proxy's region.
func TestLocalCluster(t *testing.T) {
	t.Parallel()
	const own = `endpoints: [{address: 10.0.0.1, locality: eu/a, labels: {app: front}}, {address: 10.0.0.2, locality: eu/a/x}, {address: 10.0.0.3, locality: eu/b}, {address: 10.0.0.4, locality: us/a}, {address: 10.0.0.5}]`
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "front", "{hosts: [front.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: more, protocol: HTTP}], "+own+"}"),
		xdstest.Object("ServiceEntry", "zz", "{hosts: [zz.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1, locality: eu/a}, {address: 10.0.0.9, locality: eu/a}]}"),
		xdstest.Object("ServiceEntry", "else/a", "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1, locality: eu/a}, {address: 10.0.0.8, locality: eu/a}]}"))
	node := func(change func(*xdstest.Node)) xdstest.Node {
		n := xdstest.Node{SelfDiscovery: true, Locality: "eu/a"}
		change(&n)
		return n
	}
	for name, c := range map[string]struct {
		change func(*xdstest.Node)
		want   string
	}{
		"as it is":                     {func(*xdstest.Node) {}, "eu/a: 10.0.0.1 eu/a: 10.0.0.2 eu/b: 10.0.0.3"},
		"a gateway":                    {func(n *xdstest.Node) { n.Type = discovery.Router }, "eu/a: 10.0.0.1 eu/a: 10.0.0.2 eu/b: 10.0.0.3"},
		"of another region":            {func(n *xdstest.Node) { n.Locality = "us/z" }, "us/a: 10.0.0.4"},
		"without a locality":           {func(n *xdstest.Node) { n.Locality = "" }, "eu/a: 10.0.0.1 eu/a: 10.0.0.2 eu/b: 10.0.0.3"},
		"of another namespace":         {func(n *xdstest.Node) { n.Namespace = "else" }, "eu/a: 10.0.0.1 10.0.0.8"},
		"of no service":                {func(n *xdstest.Node) { n.IP = "10.7.7.7" }, ""},
		"that does not discover":       {func(n *xdstest.Node) { n.SelfDiscovery = false }, "none"},
		"gRPC, which has none":         {func(n *xdstest.Node) { n.Type = discovery.Proxyless }, "none"},
		"with captured traffic":        {func(n *xdstest.Node) { n.Interception = discovery.InterceptionRedirect }, "eu/a: 10.0.0.1 eu/a: 10.0.0.2 eu/b: 10.0.0.3"},
		"with an address of no region": {func(n *xdstest.Node) { n.IP, n.Locality = "10.0.0.5", "" }, "/: 10.0.0.5"},
	} {
		if got := like(t, w, node(c.change)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLocalClusterOfMany: an assembled assignment equals one that is built at once.
func TestLocalClusterOfMany(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("a", "a.example", "10.1.0.1"))
	proxy := xdstest.Node{SelfDiscovery: true, IP: "10.1.0.1", Locality: "region/zone-0"}.Proxy(t)
	build := func(row *mesh.EndpointRow) string {
		in := w.Context().Inputs()
		in.Endpoints = pmap.Map[*mesh.EndpointRow]{}.Set(rows.Key("a.example", "default"), row)
		push := w.Context().Next(in)
		r, err := generate.Build(endpoint.Local{}, mesh.NewView(push, push.ClassOf(proxy)).Of(proxy), names.LocalCluster)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.Body.GetValue()); n < 10_000 {
			t.Errorf("%d bytes for many endpoints", n)
		}
		return r.Version
	}
	endpoints := slices.Concat(many(), many()[:10])
	whole, parts := &mesh.EndpointRow{Hostname: "a.example", Namespace: "default", Endpoints: endpoints}, &mesh.EndpointRow{Hostname: "a.example", Namespace: "default", Endpoints: endpoints}
	parts.Follow(nil)
	if got, want := build(parts), build(whole); got != want {
		t.Errorf("of localities %s, as a whole %s", got, want)
	}
}
