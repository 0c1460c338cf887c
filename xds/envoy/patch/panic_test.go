package patch

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
)

// TestPanic: a patch that panics changes nothing, and the others apply.
func TestPanic(t *testing.T) {
	t.Parallel()
	f := &Filter{Namespace: "shop", Name: "a"}
	patches := []*Patch{{Filter: f}, {Filter: f, Index: 1}, {Filter: f, Index: 2}}
	in := &clusterv3.Cluster{Name: "a"}
	out, results := apply(in, patches, func(r *run, m *clusterv3.Cluster, patches []*Patch) *clusterv3.Cluster {
		for _, p := range patches {
			r.step(p, func() error {
				m.Name += strings.Repeat("b", p.Index+1)
				if p.Index == 1 {
					panic("a fault")
				}
				return nil
			})
		}
		return m
	})
	if out.GetName() != "abbbb" || in.GetName() != "a" {
		t.Errorf("%s becomes %s", in.GetName(), out.GetName())
	}
	if len(results) != 3 || results[0].Err != nil || results[2].Err != nil || results[1].Err == nil || results[1].Err.Error() != "the patch panicked: a fault" {
		t.Errorf("results: %v", results)
	}
}
