package envoyfilter_test

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestTheOrderOfEnvoyFilters: of two that set one field of a cluster the later one wins: that of the
// higher priority, else that of the proxy's own namespace, else the younger. One that selects other
// workloads has no effect, also once its labels change.
func TestTheOrderOfEnvoyFilters(t *testing.T) {
	t.Parallel()
	const cluster = "outbound|80||web.example.com"
	sets := func(name, head string, seconds int) string {
		spec := fmt.Sprintf(`{%sconfigPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {connect_timeout: %ds}}}]}`, head, seconds)
		return xdstest.Object("EnvoyFilter", name, spec)
	}
	for name, c := range map[string]struct {
		filters []string
		want    int64
	}{
		"equal":               {[]string{sets("a", "", 1), sets("b", "", 2)}, 2},
		"a higher priority":   {[]string{sets("a", "priority: 1, ", 1), sets("b", "", 2)}, 1},
		"a negative priority": {[]string{sets("a", "", 1), sets("b", "priority: -1, ", 2)}, 1},
		"of the root":         {[]string{sets("istio-system/z", "", 1), sets("a", "", 2)}, 2},
		"of the root, higher": {[]string{sets("istio-system/z", "priority: 1, ", 1), sets("a", "", 2)}, 1},
		"selected":            {[]string{sets("a", "", 1), sets("b", "workloadSelector: {labels: {app: client}}, ", 2)}, 2},
		"of others":           {[]string{sets("a", "", 1), sets("b", "workloadSelector: {labels: {app: none}}, ", 2)}, 1},
		"of others, changed":  {[]string{sets("a", "", 1), sets("b", "workloadSelector: {labels: {app: none}}, ", 2), sets("b", "", 2)}, 2},
		"lowered":             {[]string{sets("a", "", 1), sets("b", "", 2), sets("b", "priority: -1, ", 2)}, 1},
	} {
		w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "web", `{hosts: [web.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.9}]}`))
		for _, f := range c.filters {
			w.Apply(f)
		}
		found := false
		for _, r := range w.Build(xdstest.Node{Labels: map[string]string{"app": "client"}}, generate.For(catalogue.Types(), discovery.Sidecar)...) {
			if r.Name != cluster {
				continue
			}
			got := &clusterv3.Cluster{}
			if err := r.Body.UnmarshalTo(got); err != nil {
				continue // the endpoints of that name
			}
			found = true
			if got.GetConnectTimeout().GetSeconds() != c.want {
				t.Errorf("%s: %s, want %ds", name, got.GetConnectTimeout(), c.want)
			}
		}
		if !found {
			t.Errorf("%s: there is no cluster", name)
		}
	}
}
