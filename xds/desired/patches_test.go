package desired_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestWhatBecameOfPatches: groups know which patches failed, and on what, and which match nothing.
// They know it from what is built: what no patch concerns changes no count. A patch is not called idle
// before all members had time to match it.
func TestWhatBecameOfPatches(t *testing.T) {
	t.Parallel()
	const services = 50
	host := func(i int) string { return fmt.Sprintf("s%d.example", i) }
	var documents []string
	for i := range services {
		documents = append(documents, xdstest.HTTPService(fmt.Sprint("s", i), host(i), "10.1.0.1"))
	}
	w := xdstest.NewWorld(t, documents...)
	groups := xdstest.NewGroups(catalogue.Types(), w.Context)
	var members []xdstest.Member
	for _, n := range []xdstest.Node{{}, {IP: "10.0.0.2"}, {IP: "10.0.0.3", Namespace: "shop"}} {
		m := groups.Join(n.Proxy(t))
		defer m.Close()
		m.Follow()
		members = append(members, m)
	}
	const path = "networking.istio.io/EnvoyFilter/istio-system/"
	var last []status.IdlePatch
	step := func(name string, settled bool, failed []status.FailedPatch, idle ...string) {
		t.Helper()
		for _, m := range members {
			m.Follow()
		}
		if d := cmp.Diff(failed, groups.FailedPatches()); d != "" {
			t.Errorf("%s: failed (-want +got)\n%s", name, d)
		}
		last = groups.IdlePatches(w.Context(), settled, last)
		var got []string
		for _, p := range last {
			got = append(got, fmt.Sprint(p.Filter[len(path):], " ", p.Index))
		}
		if !cmp.Equal(idle, got) {
			t.Errorf("%s: idle %q, want %q", name, got, idle)
		}
	}
	step("none", true, nil)
	w.Apply(timeout("istio-system/one", host(1), 3), timeout("istio-system/none", "none.example", 3))
	step("while members follow", false, nil)
	step("one matches", true, nil, "none 0")
	count := groups.Uses().ChangeCount()
	w.Apply(xdstest.HTTPService("s7", host(7), "10.1.0.2"))
	step("an endpoint", false, nil, "none 0")
	if now := groups.Uses().ChangeCount(); now != count {
		t.Errorf("an endpoint changed the counts %d times", now-count)
	}
	w.Apply(timeout("istio-system/none", host(2), 3))
	step("it matches", true, nil)
	w.Apply(xdstest.Object("EnvoyFilter", "istio-system/one", fmt.Sprintf(
		"{configPatches: [{applyTo: CLUSTER, match: {cluster: {service: %s}}, patch: {operation: MERGE, value: {lb_policy: MAGLEV, connect_timeout: -1s}}}]}", host(1))))
	for _, m := range members {
		m.Follow()
	}
	failed := groups.FailedPatches()
	if len(failed) != 1 || failed[0].Filter != path+"one" || failed[0].Message == "" || failed[0].Count != 1 || !cmp.Equal(failed[0].Resources, []string{"CDS outbound|80||" + host(1)}) {
		t.Errorf("failed: %+v", failed)
	}
	step("one failed", true, failed)
	w.Delete("envoyfilter/istio-system/one")
	w.Delete("envoyfilter/istio-system/none")
	step("without them", true, nil)
}
