package generate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// A PeerAuthentication of one namespace of many concerns what comes into its workloads, and how
// their clients call them.
func TestAPeerAuthenticationConcernsItsNamespace(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	mode := func(mode string) string {
		return xdstest.Object("PeerAuthentication", "ns0/default", "{mtls: {mode: "+mode+"}}")
	}
	documents := []string{mode("STRICT")}
	for i := range 100 {
		documents = append(documents, xdstest.Object("ServiceEntry", fmt.Sprintf("ns%d/app", i), fmt.Sprintf(
			"{hosts: [app%d.test], location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.1.0.%d, serviceAccount: app}]}", i, i+1)))
	}
	all := map[string][]*follower{}
	for name, n := range map[string]xdstest.Node{
		"the workload":      {Namespace: "ns0", IP: "10.1.0.1"},
		"another":           {Namespace: "ns1", IP: "10.1.0.2"},
		"another beside it": {Namespace: "ns0", IP: "10.2.0.1"},
	} {
		n.Certified, n.Interception = true, discovery.InterceptionRedirect
		for i, g := range append(xdstest.Generators(), xdstest.Inbound()...) {
			all[name] = append(all[name], &follower{node: n, generator: g, own: i >= len(xdstest.Generators()), built: map[string]*resource.Resource{}, reads: map[string][]mesh.Dependency{}})
		}
	}
	w := xdstest.NewWorld(t, documents...)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, f := range all[name] {
			f.advance(t, w.Context())
		}
	}
	w.Apply(mode("DISABLE"))
	got := map[string][]string{}
	for name, followers := range all {
		for _, f := range followers {
			before := versions(f.built)
			looked := f.advance(t, w.Context())
			var changed []string
			for _, r := range slices.Sorted(maps.Keys(f.built)) {
				if f.built[r].Version != before[r] {
					changed = append(changed, r)
				}
			}
			kind := f.generator.TypeURL()[strings.LastIndex(f.generator.TypeURL(), ".")+1:]
			if looked > 2 { // its own cluster, and the passthrough
				t.Errorf("%s: %d of %s are looked at", name, looked, kind)
			}
			for _, r := range changed {
				got[name] = append(got[name], kind+" "+r)
			}
		}
		slices.Sort(got[name])
	}
	endpoints, inbound := "ClusterLoadAssignment outbound|80||app0.test", "Listener virtualInbound"
	if diff := cmp.Diff(map[string][]string{
		"the workload": {endpoints, inbound}, "another beside it": {endpoints, inbound}, "another": {endpoints},
	}, got); diff != "" {
		t.Errorf("what changes, expected - and found +:\n%s", diff)
	}
}
