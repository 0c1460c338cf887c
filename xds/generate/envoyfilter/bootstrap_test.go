package envoyfilter_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestBootstrap: patches of BOOTSTRAP reach the workloads that they are for, in their order and whatever
// their context, and go with them.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	filter := func(name, spec string) string {
		return strings.Replace(xdstest.Object("EnvoyFilter", name, spec), "/v1\n", "/v1alpha3\n", 1)
	}
	flush := func(match, value string) string {
		return "{applyTo: BOOTSTRAP, match: " + match + ", patch: {operation: MERGE, value: {stats_flush_interval: " + value + "}}}"
	}
	w := xdstest.NewWorld(t)
	all := xdstest.NewGroups(catalogue.Types(), w.Context)
	join := func(n xdstest.Node) xdstest.Member {
		m := all.Join(n.Proxy(t))
		t.Cleanup(m.Close)
		return m
	}
	web := join(xdstest.Node{Namespace: "shop", IP: "10.0.0.1", Labels: map[string]string{"app": "web"}})
	other := join(xdstest.Node{Namespace: "bank", IP: "10.0.0.3"})
	of := func(m xdstest.Member) string {
		m.Follow()
		r := m.Set("BOOTSTRAP").Value(resource.BootstrapName)
		if r == nil {
			return ""
		}
		out := &structpb.Struct{}
		if err := proto.Unmarshal(r.Body.GetValue(), out); err != nil || r.Body.GetTypeUrl() != "type.googleapis.com/google.protobuf.Struct" {
			t.Fatal(r.Body.GetTypeUrl(), err)
		}
		return out.GetFields()["stats_flush_interval"].GetStringValue()
	}
	check := func(what, wantWeb, wantOther string) {
		t.Helper()
		if a, b := of(web), of(other); a != wantWeb || b != wantOther {
			t.Errorf("%s: %q and %q, want %q and %q", what, a, b, wantWeb, wantOther)
		}
	}
	check("nothing", "", "")
	w.Apply(filter("istio-system/all", "{configPatches: ["+flush("{context: GATEWAY}", "2s")+"]}"))
	check("of the root namespace, in a context that does not matter", "2s", "2s")
	w.Apply(filter("shop/web", "{workloadSelector: {labels: {app: web}}, configPatches: ["+flush("{}", "3s")+", "+flush(`{proxy: {proxyVersion: "^0.*"}}`, "4s")+"]}"))
	check("of a selector, and for another version", "3s", "2s")
	w.Apply(filter("shop/late", "{priority: 5, configPatches: ["+flush("{}", "5s")+"]}"))
	check("a priority", "5s", "2s")
	for _, path := range []string{"envoyfilter/shop/web", "envoyfilter/shop/late", "envoyfilter/istio-system/all"} {
		w.Delete(path)
	}
	check("nothing again", "", "")
}
