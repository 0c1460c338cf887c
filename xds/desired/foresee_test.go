package desired_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/desired"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestForeseenEqualsAComparison: over random histories, Foresee finds the same
// differences between two contexts as a build of all resources of each proxy in both.
// Some groups are behind the first context, and Foresee changes no group.
func TestForeseenEqualsAComparison(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	nodes := []xdstest.Node{
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.1", Labels: map[string]string{"v": "x"}},
		{Type: discovery.Sidecar, Namespace: "shop", IP: "10.1.0.1", Labels: map[string]string{"v": "x"}, RouteDelta: true},
		{Type: discovery.Sidecar, Namespace: "edge", IP: "10.0.0.2"},
		{Type: discovery.Router, Namespace: "edge", IP: "10.0.0.3", Labels: map[string]string{"app": "gw"}},
		{Type: discovery.Proxyless, Namespace: "shop", IP: "10.0.0.6", Labels: map[string]string{"v": "x"}},
	}
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: rt}
		world := xdstest.NewWorld(t)
		all := xdstest.NewGroups(catalogue.Types(), world.Context)
		var members []xdstest.Member
		var proxies []*discovery.Proxy
		for _, n := range nodes {
			proxies = append(proxies, n.Proxy(t))
			members = append(members, all.Join(proxies[len(proxies)-1]))
		}
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			h.step(world)
			viewers := make([]desired.Viewer, len(nodes))
			for i, m := range members {
				viewers[i].Proxy = proxies[i]
				if rapid.IntRange(0, 3).Draw(rt, "behind") > 0 {
					m.Follow()
					viewers[i].Reads = m.Reads()
				}
			}
			from, built := world.Context(), all.Built()
			h.step(world)
			for i, got := range all.Foresee(from, world.Context(), viewers) {
				foreseen := map[string][2]string{}
				for _, d := range got {
					foreseen[d.Type+" "+d.Name] = [2]string{versionOf(d.Before), versionOf(d.After)}
				}
				if diff := cmp.Diff(compared(rt, proxies[i], from, world.Context()), foreseen); diff != "" {
					rt.Fatalf("node %d (-compared +foreseen):\n%s", i, diff)
				}
			}
			if all.Built() != built {
				rt.Fatalf("%d resources are held, and %d were", all.Built(), built)
			}
		}
		for _, m := range members {
			m.Close()
		}
	})
}

func versionOf(r *resource.Resource) string {
	if r == nil {
		return ""
	}
	return r.Version
}

// compared builds all resources of a proxy in two contexts, and returns the versions of
// those that differ.
func compared(rt *rapid.T, proxy *discovery.Proxy, from, to *mesh.PushContext) map[string][2]string {
	out := map[string][2]string{}
	for side, push := range []*mesh.PushContext{from, to} {
		view := mesh.NewView(push, push.ClassOf(proxy))
		for _, t := range catalogue.Types() {
			makers := map[generate.Generator]*mesh.View{t.For(proxy.Type): view}
			if own := t.Own(proxy); own != nil {
				makers[own] = view.Of(proxy)
			}
			for g, as := range makers {
				for name := range g.Affected(as, mesh.Diff(nil, push)) {
					r, err := generate.Build(g, as, name)
					if err != nil {
						rt.Fatal(err)
					}
					if r != nil {
						versions := out[t.Name+" "+name]
						versions[side] = r.Version
						out[t.Name+" "+name] = versions
					}
				}
			}
		}
	}
	for name, versions := range out {
		if versions[0] == versions[1] {
			delete(out, name)
		}
	}
	return out
}
