package virtualhost_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// aliasRow is the row of a Service of the type ExternalName in the namespace shop, which has the port 9999.
// Without an external name there is none.
func aliasRow(name, of string, exportTo ...string) discovery.Row {
	h := host.Name(name + ".shop.svc.cluster.local")
	row := discovery.Row{Hostname: h, Namespace: "shop"}
	if of == "" {
		return row
	}
	row.Services = []*discovery.Service{{
		Hostname: h, Address: discovery.UnspecifiedIP, Resolution: discovery.DNSLB, MeshExternal: true,
		Ports: []discovery.Port{{Name: "http", Number: 9999, Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{
			Provider: discovery.Kubernetes, Name: name, Namespace: "shop", ExternalName: host.Name(of), ExportTo: exportTo,
		},
	}}
	row.Endpoints = []*discovery.Endpoint{{Address: of, Port: 9999, ServicePortName: "http", Weight: 1, TLSMode: discovery.TLSModeDisabled}}
	return row
}

// TestAliases: a host whose external name is a service that the client sees is one of the names of that
// service. Any other is a service of its own. A client that follows the changes has what one has that begins.
func TestAliases(t *testing.T) {
	t.Parallel()
	const (
		concrete, a, b = "web.example.com", "a.shop.svc.cluster.local", "b.shop.svc.cluster.local"
		toA, pass      = "outbound|9999||" + a, "PassthroughCluster"
		none           = "no listener"
		hidden         = "{hosts: [web.example.com], exportTo: ['.'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.1.0.1}]}"
	)
	at := func(h string, port int) simulate.Request { return simulate.Request{Host: h, Port: port} }
	node := xdstest.Node{Namespace: "shop", IP: "10.0.0.9", Domain: "shop.svc.cluster.local"}
	type step struct {
		do      func(*xdstest.World)
		request simulate.Request
		want    string
	}
	offer := func(name, of string, exportTo ...string) func(*xdstest.World) {
		return func(w *xdstest.World) { w.Offer(aliasRow(name, of, exportTo...)) }
	}
	apply := func(document string) func(*xdstest.World) { return func(w *xdstest.World) { w.Apply(document) } }
	remove := func(name string) func(*xdstest.World) { return func(w *xdstest.World) { w.Delete(name) } }
	onto := func(h string) string {
		return xdstest.Object("VirtualService", "shop/v", "{hosts: ["+h+"], http: [{directResponse: {status: 418}}]}")
	}
	for _, tt := range []struct {
		name  string
		mesh  []string
		steps []step
	}{
		{"an alias", []string{web}, []step{
			{offer("a", concrete), at(a, 80), toWeb},
			{nil, at(a+".", 80), toWeb},
			{nil, at("a", 80), toWeb},
			{nil, at("a.shop", 80), toWeb},
			{nil, at("a.shop.svc", 80), toWeb},
			{nil, at(concrete, 80), toWeb},
			{nil, at(a, 9999), none},
		}},
		{"a chain", []string{web}, []step{
			{offer("a", b), at(a, 9999), toA},
			{offer("b", concrete), at(a, 80), toWeb},
			{nil, at("b", 80), toWeb},
			{nil, at(a, 9999), none},
			{offer("b", ""), at(a, 80), pass},
			{nil, at(a, 9999), toA},
		}},
		{"a cycle", nil, []step{
			{offer("a", b), at(a, 9999), toA},
			{offer("b", a), at(a, 9999), none},
			{offer("b", b), at(a, 9999), none},
			{offer("b", ""), at(a, 9999), toA},
		}},
		{"the service comes and goes", nil, []step{
			{offer("a", concrete), at(a, 9999), toA},
			{apply(web), at(a, 80), toWeb},
			{nil, at(a, 9999), none},
			{remove("serviceentry/default/web"), at(a, 9999), toA},
			{nil, at(a, 80), none},
		}},
		{"the external name changes", []string{web}, []step{
			{offer("a", "elsewhere.example.org"), at(a, 9999), toA},
			{offer("a", concrete), at(a, 80), toWeb},
			{offer("a", "elsewhere.example.org"), at(a, 80), pass},
		}},
		{"a service of another namespace alone", []string{xdstest.Object("ServiceEntry", "other/web", hidden)}, []step{
			{offer("a", concrete), at(a, 9999), toA},
			{nil, at(a, 80), none},
		}},
		{"an alias of another namespace alone", []string{web}, []step{
			{offer("a", concrete, "other"), at(a, 80), pass},
			{offer("a", concrete, "shop"), at(a, 80), toWeb},
		}},
		{"routes of the service", []string{web}, []step{
			{offer("a", concrete), at(a, 80), toWeb},
			{apply(onto(concrete)), at(a, 80), "418"},
		}},
		{"routes of the alias", []string{web}, []step{
			{apply(onto(a)), at(a, 80), "418"},
			{offer("a", concrete), at(a, 80), toWeb},
			{offer("a", ""), at(a, 80), "418"},
		}},
		{"a Sidecar that imports the service alone", []string{web, xdstest.Object("Sidecar", "shop/s", "{egress: [{hosts: ['*/web.example.com']}]}")}, []step{
			{offer("a", concrete), at(a, 80), pass},
			{apply(xdstest.Object("Sidecar", "shop/s", "{egress: [{hosts: ['*/web.example.com', './*']}]}")), at(a, 80), toWeb},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tt.mesh...)
			follower := xdstest.NewGroups(catalogue.Types(), w.Context).Join(node.Proxy(t))
			t.Cleanup(follower.Close)
			for i, step := range tt.steps {
				if step.do != nil {
					step.do(w)
				}
				if got := w.Simulate(node).Run(step.request).String(); got != step.want {
					t.Errorf("step %d: %s:%d leads to %s, want %s", i, step.request.Host, step.request.Port, got, step.want)
				}
				follower.Follow()
				fresh := xdstest.NewGroups(catalogue.Types(), w.Context).Join(node.Proxy(t))
				fresh.Follow()
				if diff := cmp.Diff(fresh.Versions(), follower.Versions()); diff != "" {
					t.Errorf("step %d: who follows differs from who begins (-begins +follows):\n%s", i, diff)
				}
				fresh.Close()
			}
		})
	}
}

// TestAliasesFollowTheServiceAlone: a service that comes changes its own resources and those of its alias,
// and endpoints that change do not make the alias again.
func TestAliasesFollowTheServiceAlone(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("other", "other.example.com", "10.7.0.5"))
	w.Offer(aliasRow("a", "web.example.com"))
	node := xdstest.Node{Namespace: "shop", IP: "10.0.0.9", RouteDelta: true}
	m := xdstest.NewGroups(catalogue.Types(), w.Context).Join(node.Proxy(t))
	t.Cleanup(m.Close)
	changed := func(change func()) (out []string) {
		m.Follow()
		before := m.Versions()
		change()
		m.Follow()
		after := m.Versions()
		for name := range after {
			if after[name] != before[name] {
				out = append(out, name)
			}
		}
		for name := range before {
			if _, still := after[name]; !still {
				out = append(out, name)
			}
		}
		return out
	}
	for _, name := range changed(func() { w.Apply(web) }) {
		if strings.Contains(name, "other.example.com") {
			t.Errorf("%s changed with a service that it does not read", name)
		}
	}
	for _, name := range changed(func() { w.Apply(strings.Replace(web, "10.1.0.1", "10.1.0.2", 1)) }) {
		if strings.Contains(name, "a.shop.svc") {
			t.Errorf("%s changed with an endpoint", name)
		}
	}
}
