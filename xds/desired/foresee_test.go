package desired_test

import (
	"maps"
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
				foreseen := versions{}
				for _, d := range got {
					foreseen[d.Type+" "+d.Name] = [2]string{versionOf(d.Before), versionOf(d.After)}
				}
				if diff := cmp.Diff(compared(rt, proxies[i], from, world.Context(), got), foreseen); diff != "" {
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

// versions are those of resources before and after, by type and name; empty for none.
type versions map[string][2]string

// compared builds all resources of a proxy in two contexts, and returns the versions of
// those that differ. Of the resources that others need it builds what is needed in either,
// and what was foreseen, since a group that is behind may still need it.
func compared(rt *rapid.T, proxy *discovery.Proxy, from, to *mesh.PushContext, foreseen []desired.Difference) versions {
	out := versions{}
	needs := map[string]map[string]struct{}{}
	need := func(typeURL, name string) {
		if needs[typeURL] == nil {
			needs[typeURL] = map[string]struct{}{}
		}
		needs[typeURL][name] = struct{}{}
	}
	for _, d := range foreseen {
		need(d.TypeURL, d.Name)
	}
	contexts := []*mesh.PushContext{from, to}
	sides := []*mesh.View{mesh.NewView(from, from.ClassOf(proxy)), mesh.NewView(to, to.ClassOf(proxy))}
	build := func(side int, as *mesh.View, t generate.ResourceType, g generate.Generator, name string) {
		r, err := generate.Build(g, as, name)
		if err != nil {
			rt.Fatal(err)
		}
		if r == nil {
			return
		}
		is := out[t.Name+" "+name]
		is[side] = r.Version
		out[t.Name+" "+name] = is
		for _, n := range r.Needs {
			if n.Kind == resource.Once {
				need(n.TypeURL, n.Name)
			}
		}
	}
	for _, t := range catalogue.Types() {
		for side, view := range sides {
			makers := map[generate.Generator]*mesh.View{t.For(proxy.Type): view}
			if own := t.Own(proxy); own != nil {
				makers[own] = view.Of(proxy)
			}
			for g, as := range makers {
				for name := range g.Affected(as, mesh.Diff(nil, contexts[side])) {
					build(side, as, t, g, name)
				}
			}
		}
		for name := range needs[t.Generator.TypeURL()] {
			for side, view := range sides {
				if t.Needed && t.Alike && t.Own(proxy) != nil {
					build(side, view.Of(proxy), t, t.Generator, name)
				}
			}
		}
	}
	maps.DeleteFunc(out, func(_ string, is [2]string) bool { return is[0] == is[1] })
	return out
}
