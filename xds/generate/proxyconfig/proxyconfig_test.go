package proxyconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func config(name, spec string) string {
	return strings.Replace(xdstest.Object("ProxyConfig", name, spec), "/v1\n", "/v1beta1\n", 1)
}

// group is a WorkloadGroup that is annotated with a ProxyConfig.
func group(name, annotation string) string {
	return xdstest.Object("WorkloadGroup", name, fmt.Sprintf("{template: {}, metadata: {annotations: {proxy.istio.io/config: %q}}}", annotation))
}

// of returns what a member has: the threads, the variables and the server header; empty for nothing.
func of(t *testing.T, m xdstest.Member) string {
	t.Helper()
	m.Follow()
	r := m.Set("PROXY").Value(resource.ProxyConfigName)
	if r == nil {
		return ""
	}
	out := &meshv1alpha1.ProxyConfig{}
	if err := proto.Unmarshal(r.Body.GetValue(), out); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprint(out.GetConcurrency().GetValue(), " ", out.GetProxyMetadata()["A"], " ", out.GetProxyHeaders().GetServer().GetValue()))
}

// TestTheNearestDecides: of the mesh, the root namespace, the namespace, the group and a selector the
// nearest that sets a field decides, and of several at one level the oldest.
func TestTheNearestDecides(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, group("shop/web", "{concurrency: 4, proxyHeaders: {server: {value: own}}}"))
	all := xdstest.NewGroups(catalogue.Types(), w.Context)
	join := func(n xdstest.Node) xdstest.Member {
		m := all.Join(n.Proxy(t))
		t.Cleanup(m.Close)
		return m
	}
	labelled := join(xdstest.Node{Namespace: "shop", IP: "10.0.0.1", Labels: map[string]string{"app": "web"}})
	member := join(xdstest.Node{Namespace: "shop", IP: "10.0.0.2", Group: "web"})
	other := join(xdstest.Node{Namespace: "bank", IP: "10.0.0.3"})
	check := func(what, wantLabelled, wantMember, wantOther string) {
		t.Helper()
		if a, b, c := of(t, labelled), of(t, member), of(t, other); a != wantLabelled || b != wantMember || c != wantOther {
			t.Errorf("%s: %q, %q and %q, want %q, %q and %q", what, a, b, c, wantLabelled, wantMember, wantOther)
		}
	}
	check("a group alone", "", "4  own", "")
	w.SetMesh("defaultConfig: {concurrency: 1, proxyHeaders: {server: {value: mesh}}}")
	check("of the mesh, whose headers need no restart", "1", "4  own", "1")
	w.Apply(config("istio-system/all", "{environmentVariables: {A: all}}"))
	check("of the root namespace", "1 all", "4 all own", "1 all")
	w.Apply(config("shop/shop", "{concurrency: 2, environmentVariables: {A: shop}}"))
	check("of a namespace", "2 shop", "4 shop own", "1 all")
	w.Apply(config("shop/web", "{selector: {matchLabels: {app: web}}, concurrency: 3}"), config("shop/zweit", "{concurrency: 9}"))
	check("of a selector, and one that is younger", "3 shop", "4 shop own", "1 all")
	for _, path := range []string{"proxyconfig/shop/web", "proxyconfig/shop/shop", "proxyconfig/shop/zweit", "proxyconfig/istio-system/all", "workloadgroup/shop/web"} {
		w.Delete(path)
	}
	check("without any", "1", "1", "1")
}
