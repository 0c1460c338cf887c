package mesh_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// virtualService writes a VirtualService of a.example. Those applied first are older.
func virtualService(name, gateway, exportTo string) string {
	return xdstest.Object("VirtualService", name, fmt.Sprintf(
		"{hosts: [a.example], gateways: [%s], exportTo: [%s], http: [{route: [{destination: {host: a.example}}]}]}", gateway, exportTo))
}

func virtualServiceNames(list []*routing.VirtualService) []string {
	var out []string
	for _, vs := range list {
		out = append(out, vs.Config.Namespace+"/"+vs.Config.Name)
	}
	return out
}

// TestVirtualServicesInLookupOrder: first those private to the proxy's namespace, then
// those exported to it, then public ones. In each group the oldest comes first.
func TestVirtualServicesInLookupOrder(t *testing.T) {
	t.Parallel()
	for _, gateway := range []string{mesh.MeshGateway, "edge/gw"} {
		w := xdstest.NewWorld(t,
			virtualService("shop/public", gateway, "'*'"),
			virtualService("edge/shared", gateway, "shop, edge"),
			virtualService("edge/hidden", gateway, "."),
			virtualService("shop/private", gateway, "."),
			virtualService("shop/younger", gateway, "shop, edge"),
		)
		for namespace, want := range map[string][]string{
			"shop":  {"shop/private", "shop/younger", "edge/shared", "shop/public"},
			"edge":  {"edge/shared", "edge/hidden", "shop/younger", "shop/public"},
			"other": {"shop/public"},
		} {
			v := w.View(xdstest.Node{Namespace: namespace})
			list := v.VirtualServices(gateway, "a.example")
			if d := cmp.Diff(want, virtualServiceNames(list)); d != "" {
				t.Errorf("%s from %s (-want +got):\n%s", gateway, namespace, d)
			}
			if !slices.IsSortedFunc(list, v.CompareVirtualServices) {
				t.Errorf("%s from %s: the order is not that of CompareVirtualServices", gateway, namespace)
			}
			if gateway != mesh.MeshGateway {
				continue
			}
			if got := v.VirtualServiceAt(v.Egress()[0], "a.example"); virtualServiceNames([]*routing.VirtualService{got})[0] != want[0] {
				t.Errorf("from %s %s applies", namespace, got.Config.Name)
			}
		}
	}
}

// TestOrderIsPartOfTheAnswer: two namespaces that see the same VirtualServices in a
// different order get different answers.
func TestOrderIsPartOfTheAnswer(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		virtualService("shop/a", mesh.MeshGateway, "shop, edge"), virtualService("edge/b", mesh.MeshGateway, "shop, edge"))
	shop, edge := w.View(xdstest.Node{Namespace: "shop"}).Recording(), w.View(xdstest.Node{Namespace: "edge"})
	shop.VirtualServiceAt(shop.Egress()[0], "a.example")
	shop.VirtualServices(mesh.MeshGateway, "a.example")
	for _, r := range shop.Dependencies() {
		if r.Query.Row.Table == mesh.Routes && edge.Answer(r.Query) == r.Answer {
			t.Errorf("%v has one answer in both namespaces", r.Query)
		}
	}
}

func rule(name, host, exportTo, subset string) string {
	return xdstest.Object("DestinationRule", name, fmt.Sprintf(
		"{host: '%s', exportTo: [%s], subsets: [{name: %s, labels: {v: x}}]}", host, exportTo, subset))
}

func subsetNames(r *destination.Rule) []string {
	var out []string
	if r != nil {
		for _, s := range r.Subsets {
			out = append(out, s.GetName())
		}
	}
	return out
}

// TestRuleLookup follows SEMANTICS of destinationRule: the client's namespace, the
// service's, the root namespace; the first that has a match decides.
func TestRuleLookup(t *testing.T) {
	t.Parallel()
	const public, private, root = "'*'", ".", "istio-system"
	service := xdstest.HTTPService("shop/a", "a.shop.example", "10.1.0.1")
	for _, tc := range []struct {
		name, client string
		rules        []string
		want         []string
	}{
		{"the client's own outranks a more specific one", "edge", []string{
			rule("shop/x", "a.shop.example", public, "shop"), rule("edge/x", "*.example", private, "edge"),
		}, []string{"edge"}},
		{"the service's outranks the root's", "edge", []string{
			rule(root+"/x", "a.shop.example", public, "root"), rule("shop/x", "*.example", public, "shop"),
		}, []string{"shop"}},
		{"the root's applies where no other does", "edge", []string{
			rule(root+"/x", "*.example", public, "root"), rule("shop/x", "a.shop.example", private, "shop"),
		}, []string{"root"}},
		{"the root's own private ones are for its own clients", "edge", []string{
			rule(root+"/x", "*.example", private, "root"),
		}, nil},
		{"a client in the root namespace: a public rule there is for all, and comes last", root, []string{
			rule(root+"/x", "a.shop.example", public, "root"), rule("shop/x", "*.example", public, "shop"),
		}, []string{"shop"}},
		{"a client in the root namespace: a private rule there is for it, and comes first", root, []string{
			rule("shop/x", "a.shop.example", public, "shop"), rule(root+"/x", "*.example", private, "root"),
		}, []string{"root"}},
		{"a client in the root namespace: a public rule applies where no other does", root, []string{
			rule(root+"/x", "*.example", public, "root"),
		}, []string{"root"}},
		{"rules of one namespace and host merge", "shop", []string{
			rule("shop/x", "a.shop.example", public, "one"), rule("shop/z", "a.shop.example", public, "two"),
		}, []string{"one", "two"}},
		{"rules for others do not merge", "shop", []string{
			rule("shop/x", "a.shop.example", "shop, edge", "one"), rule("shop/z", "a.shop.example", "shop, other", "two"),
		}, []string{"one"}},
		{"a rule for more namespaces merges into the older for fewer", "shop", []string{
			rule("shop/x", "a.shop.example", "shop", "one"), rule("shop/z", "a.shop.example", "shop, edge", "two"),
		}, []string{"one", "two"}},
		{"and stands alone for the others", "edge", []string{
			rule("shop/x", "a.shop.example", "shop", "one"), rule("shop/z", "a.shop.example", "shop, edge", "two"),
		}, []string{"two"}},
		{"a rule for fewer does not merge into one for more", "shop", []string{
			rule("shop/x", "a.shop.example", "shop, edge", "one"), rule("shop/z", "a.shop.example", "shop", "two"),
		}, []string{"one"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append([]string{service}, tc.rules...)...)
			v := w.View(xdstest.Node{Namespace: tc.client})
			if d := cmp.Diff(tc.want, subsetNames(v.Rule(v.Service("a.shop.example")))); d != "" {
				t.Errorf("subsets (-want +got):\n%s", d)
			}
		})
	}
}

// TestRulesForClients: a rule with a selector applies only to clients of its namespace
// that match it, and to no server. For all others it does not exist.
func TestRulesForClients(t *testing.T) {
	t.Parallel()
	const mine = `{host: %s, workloadSelector: {matchLabels: {app: front}}, subsets: [{name: %s, labels: {v: x}}]}`
	w := xdstest.NewWorld(t, xdstest.HTTPService("shop/a", "a.shop.example", "10.1.0.1"),
		rule("shop/all", "a.shop.example", "'*'", "all"),
		xdstest.Object("DestinationRule", "shop/younger", fmt.Sprintf(mine, "a.shop.example", "some")),
		xdstest.Object("DestinationRule", "shop/merged", fmt.Sprintf(mine, "a.shop.example", "more")),
		xdstest.Object("DestinationRule", "edge/wide", fmt.Sprintf(mine, "'*.example'", "wide")),
		xdstest.Object("DestinationRule", "back/everyone", "{host: a.shop.example, workloadSelector: {}, subsets: [{name: everyone, labels: {v: x}}]}"))
	front := map[string]string{"app": "front", "v": "1"}
	for _, tc := range []struct {
		name         string
		node         xdstest.Node
		want, server []string
	}{
		{"of the namespace, with the labels", xdstest.Node{Namespace: "shop", Labels: front}, []string{"some", "more"}, []string{"all"}},
		{"without", xdstest.Node{Namespace: "shop", Labels: map[string]string{"app": "back"}}, []string{"all"}, []string{"all"}},
		{"of another namespace, by a pattern", xdstest.Node{Namespace: "edge", Labels: front}, []string{"wide"}, []string{"all"}},
		{"of another namespace, without the labels", xdstest.Node{Namespace: "edge"}, []string{"all"}, []string{"all"}},
		{"of a namespace without such rules", xdstest.Node{Namespace: "other", Labels: front}, []string{"all"}, []string{"all"}},
		{"of a namespace whose rule selects everybody", xdstest.Node{Namespace: "back"}, []string{"everyone"}, []string{"all"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := w.View(tc.node)
			s := v.Service("a.shop.example")
			if d := cmp.Diff([][]string{tc.want, tc.server}, [][]string{subsetNames(v.Rule(s)), subsetNames(v.ServerRule(s))}); d != "" {
				t.Errorf("subsets for the client and the server (-want +got):\n%s", d)
			}
		})
	}
}

// TestClassesOfClients: selectors of DestinationRules tell proxies of their namespace
// apart, and no others.
func TestClassesOfClients(t *testing.T) {
	t.Parallel()
	one := func(namespace, app string) xdstest.Node {
		return xdstest.Node{Namespace: namespace, Labels: map[string]string{"app": app}}
	}
	w := xdstest.NewWorld(t, xdstest.Object("DestinationRule", "shop/x",
		"{host: a.shop.example, workloadSelector: {matchLabels: {app: front}}, trafficPolicy: {loadBalancer: {simple: RANDOM}}}"))
	class := func(n xdstest.Node) mesh.Class { return w.View(n).Class() }
	if class(one("shop", "front")) == class(one("shop", "back")) {
		t.Error("clients that a rule tells apart are of one class")
	}
	if class(one("shop", "back")) != class(one("shop", "other")) || class(one("edge", "front")) != class(one("edge", "back")) {
		t.Error("clients that no rule tells apart are of two classes")
	}
}

// TestDefaultExportOfRules: "." is honoured, and anything else is public.
func TestDefaultExportOfRules(t *testing.T) {
	t.Parallel()
	for exportTo, want := range map[string][]string{"'.'": nil, "'*'": {"one"}, "'~'": {"one"}, "other": {"one"}} {
		w := xdstest.NewWorld(t, xdstest.HTTPService("shop/a", "a.shop.example", "10.1.0.1"),
			xdstest.Object("DestinationRule", "shop/x", "{host: a.shop.example, subsets: [{name: one, labels: {v: x}}]}"))
		w.SetMesh("defaultDestinationRuleExportTo: [" + exportTo + "]")
		v := w.View(xdstest.Node{Namespace: "edge"})
		if d := cmp.Diff(want, subsetNames(v.Rule(v.Service("a.shop.example")))); d != "" {
			t.Errorf("%s (-want +got):\n%s", exportTo, d)
		}
	}
}

// TestDefaultExportOfRoutes: the mesh configuration decides who sees a VirtualService
// without exportTo, at the start and after a change.
func TestDefaultExportOfRoutes(t *testing.T) {
	t.Parallel()
	for exportTo, want := range map[string]bool{"'.'": false, "'*'": true, "'~'": false, "edge": true, "shop, edge": true, "other": false} {
		w := xdstest.NewWorld(t, xdstest.Object("VirtualService", "shop/x", "{hosts: [a.example], http: [{directResponse: {status: 200}}]}"),
			xdstest.Object("VirtualService", "shop/z", "{hosts: [b.example], exportTo: ['*'], http: [{directResponse: {status: 200}}]}"))
		w.SetMesh("defaultVirtualServiceExportTo: [" + exportTo + "]")
		v := w.View(xdstest.Node{Namespace: "edge"})
		l := v.Egress()[0]
		if got := v.VirtualServiceNamed(l, "a.example") != nil; got != want {
			t.Errorf("%s: seen %v, want %v", exportTo, got, want)
		}
		if v.VirtualServiceNamed(l, "b.example") == nil {
			t.Errorf("%s: exportTo of the object is outranked", exportTo)
		}
	}
}

// asksFor writes a VirtualService that selects requests by a source label.
func asksFor(key, value string) string {
	return xdstest.Object("VirtualService", "shop/asks-for-"+value, fmt.Sprintf(
		"{hosts: [asks.example], http: [{match: [{sourceLabels: {%s: %s}}], directResponse: {status: 200}}]}", key, value))
}

// TestLabelsOfAProxy: the labels of the workload at its address override those in its
// metadata. A workload of its own namespace comes first.
func TestLabelsOfAProxy(t *testing.T) {
	t.Parallel()
	at := func(name, host, ip, labels string) string {
		return xdstest.Object("ServiceEntry", name, fmt.Sprintf(
			"{hosts: [%s], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: '%s', labels: {%s}}]}", host, ip, labels))
	}
	for _, tc := range []struct {
		name, ip  string
		documents []string
		want      labels.Instance
	}{
		{"stated", "10.0.0.1", nil, labels.Instance{"app": "stated"}},
		{"of the registry", "10.0.0.1", []string{at("shop/a", "a.example", "10.0.0.1", "app: a")}, labels.Instance{"app": "a"}},
		{"another service at the address has none", "10.0.0.1", []string{
			at("shop/a", "a.example", "10.0.0.1", ""), at("shop/b", "b.example", "10.0.0.1", "app: b"),
		}, labels.Instance{"app": "b"}},
		{"of its own namespace", "10.0.0.1", []string{
			at("edge/a", "a.example", "10.0.0.1", "app: theirs"), at("shop/b", "b.example", "10.0.0.1", "app: ours"),
		}, labels.Instance{"app": "ours"}},
		{"stated, where the address is every machine's", "127.0.0.1", []string{at("shop/a", "a.example", "127.0.0.1", "app: a")}, labels.Instance{"app": "stated"}},
		{"whatever the spelling of the address", "2001:db8::1", []string{at("shop/a", "a.example", "2001:DB8:0:0::1", "app: a")}, labels.Instance{"app": "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append(tc.documents, asksFor("app", tc.want["app"]))...)
			n := xdstest.Node{Namespace: "shop", IP: tc.ip, Labels: map[string]string{"app": "stated"}}
			if !w.View(n).HasLabels(tc.want) {
				t.Errorf("the proxy does not have %v", tc.want)
			}
		})
	}
}

// TestAnIdentityOutranksAnAddress: a proxy that proved an identity takes labels only from
// endpoints of that identity at its address.
func TestAnIdentityOutranksAnAddress(t *testing.T) {
	t.Parallel()
	at := func(name, account string) string {
		return xdstest.Object("ServiceEntry", name, fmt.Sprintf(
			"{hosts: [%s.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1, labels: {app: %s}, serviceAccount: '%s'}]}",
			name[len("shop/"):], name[len("shop/"):], account))
	}
	w := xdstest.NewWorld(t, at("shop/a", ""), at("shop/b", "other"), at("shop/c", "web"),
		asksFor("app", "a"), asksFor("app", "c"), asksFor("app", "stated"))
	for _, tc := range []struct{ name, identity, want string }{
		{"not authenticated: the first endpoint at the address", "", "a"},
		{"authenticated: the one of its identity", "spiffe://cluster.local/ns/shop/sa/web", "c"},
		{"authenticated as nobody known: its own", "spiffe://cluster.local/ns/shop/sa/db", "stated"},
		{"of another namespace: its own", "spiffe://cluster.local/ns/edge/sa/web", "stated"},
	} {
		n := xdstest.Node{Namespace: "shop", Labels: map[string]string{"app": "stated"}, Identity: tc.identity}
		if want := (labels.Instance{"app": tc.want}); !w.View(n).HasLabels(want) {
			t.Errorf("%s: the proxy does not have %v", tc.name, want)
		}
	}
}

// TestAGatewayKeepsItsLabels: an entry at the address of a gateway takes none of its labels
// away, and may add some; of a sidecar the entry's labels count.
func TestAGatewayKeepsItsLabels(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]map[discovery.ProxyType]string{
		"app: web":             {discovery.Router: "app=edge", discovery.Sidecar: "app=web"},
		"app: edge, tier: dmz": {discovery.Router: "app=edge,tier=dmz", discovery.Sidecar: "app=edge,tier=dmz"},
		"tier: dmz":            {discovery.Router: "app=edge", discovery.Sidecar: "tier=dmz"},
	} {
		w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "shop/a", fmt.Sprintf(
			"{hosts: [a.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1, labels: {%s}}]}", entry)))
		for kind, labels := range want {
			proxy := xdstest.Node{Type: kind, Namespace: "shop", Labels: map[string]string{"app": "edge"}}.Proxy(t)
			if got := w.Context().PlaceOf(proxy).Labels.String(); got != labels {
				t.Errorf("an entry with %s: a %s has %s, want %s", entry, kind, got, labels)
			}
		}
	}
}

// TestAClassFollowsWhatItIsMadeOf: a class changes only with its parts: the Gateways and
// the Sidecar that select the proxy, and the source labels that it matches.
func TestAClassFollowsWhatItIsMadeOf(t *testing.T) {
	t.Parallel()
	entry := func(ip, app string) string {
		return xdstest.Object("ServiceEntry", "shop/a", fmt.Sprintf(
			"{hosts: [a.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: %s, labels: {app: %s}}]}", ip, app))
	}
	gateway := func(port int) string {
		return xdstest.Object("Gateway", "edge/gw", fmt.Sprintf("{selector: {app: gw}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['*']}]}", port))
	}
	sidecar := func(hosts string) string {
		return xdstest.Object("Sidecar", "shop/s", "{workloadSelector: {labels: {app: gw}}, egress: [{hosts: ['"+hosts+"']}]}")
	}
	for _, kind := range []discovery.ProxyType{discovery.Sidecar, discovery.Router} {
		proxy := xdstest.Node{Type: kind, Namespace: "shop", Labels: map[string]string{"app": "gw"}}.Proxy(t)
		w := xdstest.NewWorld(t)
		from := w.Context()
		class := from.ClassAfter(nil, proxy, mesh.Class{})
		for _, step := range []struct {
			name, document  string
			sidecar, router bool // whether the class of one changes
		}{
			{"a service elsewhere", xdstest.HTTPService("shop/b", "b.example", "10.9.0.1"), false, false},
			{"a gateway that selects it", gateway(80), false, true},
			{"which changes", gateway(81), false, false},
			{"a Sidecar", sidecar("./*"), true, false},
			{"which changes", sidecar("*/*"), false, false},
			{"a workload at another address", entry("10.0.0.2", "other"), false, false},
			{"the workload at its address", entry("10.0.0.1", "other"), true, false}, // a gateway keeps its labels
			{"source labels that it does not have", asksFor("app", "nobody"), false, false},
			{"source labels that it has", asksFor("app", "other"), true, false},
			{"which another VirtualService has, too", xdstest.Object("VirtualService", "edge/too",
				"{hosts: [too.example], http: [{match: [{sourceLabels: {app: other}}], directResponse: {status: 200}}]}"), false, false},
			{"which is labelled anew", entry("10.0.0.1", "gw"), true, false},
		} {
			w.Apply(step.document)
			next := w.Context().ClassAfter(from, proxy, class)
			want := map[discovery.ProxyType]bool{discovery.Sidecar: step.sidecar, discovery.Router: step.router}[kind]
			if got := next != class; got != want {
				t.Errorf("%s of a %s: changed %v, want %v", step.name, kind, got, want)
			}
			if next != w.Context().ClassOf(proxy) {
				t.Errorf("%s of a %s: the class that follows is not that of the context", step.name, kind)
			}
			from, class = w.Context(), next
		}
	}
}
