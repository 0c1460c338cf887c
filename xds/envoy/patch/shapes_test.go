package patch_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/envoy/patch/patchtest"
)

// shapes returns the specs of patchtest.Shapes, in the order of their names.
func shapes(t testing.TB) []*networking.EnvoyFilter {
	t.Helper()
	all := patchtest.Shapes(t)
	var out []*networking.EnvoyFilter
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

// everyPatch has the patches of all shapes.
func everyPatch(t testing.TB) [][]*patch.Patch {
	var out [][]*patch.Patch
	for _, spec := range shapes(t) {
		out = append(out, patch.Parse("shop", "shape", time.Unix(1, 0), spec).Patches)
	}
	return out
}

// placeOf completes the place of a message.
func placeOf(m proto.Message, at patch.Place) patch.Place {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		at.Kind, at.Name = networking.EnvoyFilter_CLUSTER, m.GetName()
	case *listenerv3.Listener:
		at.Kind, at.Name, at.Port = networking.EnvoyFilter_LISTENER, m.GetName(), m.GetAddress().GetSocketAddress().GetPortValue()
	case *routev3.RouteConfiguration:
		at.Kind, at.Name = networking.EnvoyFilter_ROUTE_CONFIGURATION, m.GetName()
	case *routev3.VirtualHost:
		at.Kind, at.Name = networking.EnvoyFilter_VIRTUAL_HOST, m.GetName()
	}
	return at
}

// TestShapes: the shapes of testdata are read, apart from those that say otherwise, and each applies
// to something.
func TestShapes(t *testing.T) {
	t.Parallel()
	all := everyPatch(t)
	if len(all) < 200 {
		t.Errorf("there are %d shapes", len(all))
	}
	unread, used := 0, map[*patch.Patch]bool{}
	for _, b := range patchtest.Bases(t) {
		for _, patches := range all {
			_, results := patchtest.Apply(b.Message, b.Place, patches)
			for _, r := range results {
				used[r.Patch] = true
			}
		}
	}
	idle := 0
	for _, patches := range all {
		for _, p := range patches {
			if p.Err != nil {
				unread++
			} else if !used[p] && p.Operation != networking.EnvoyFilter_Patch_ADD {
				idle++
			}
		}
	}
	if unread != 2 {
		t.Errorf("%d patches cannot be read", unread)
	}
	if idle > 10 {
		t.Errorf("%d patches change nothing", idle)
	}
}

// draw makes EnvoyFilters of the shapes by a seed: some of them, with other operations, contexts and
// matches.
func draw(specs []*networking.EnvoyFilter, r *rand.Rand) []*networking.EnvoyFilter {
	var all []*networking.EnvoyFilter_EnvoyConfigObjectPatch
	for _, spec := range specs {
		all = append(all, spec.GetConfigPatches()...)
	}
	one := func() *networking.EnvoyFilter_EnvoyConfigObjectPatch { return all[r.IntN(len(all))] }
	var out []*networking.EnvoyFilter
	for range 1 + r.IntN(3) {
		spec := &networking.EnvoyFilter{}
		for range 1 + r.IntN(5) {
			p := proto.CloneOf(one())
			if r.IntN(3) == 0 {
				p.Patch.Operation = networking.EnvoyFilter_Patch_Operation(r.IntN(len(networking.EnvoyFilter_Patch_Operation_name)))
			}
			if r.IntN(4) == 0 {
				p.Match = proto.CloneOf(one().GetMatch())
			}
			if r.IntN(3) == 0 && p.Match != nil {
				p.Match.Context = networking.EnvoyFilter_ANY
			}
			if r.IntN(9) == 0 {
				p.ApplyTo = one().GetApplyTo()
			}
			if r.IntN(9) == 0 {
				p.Patch.Value = proto.CloneOf(one().GetPatch().GetValue())
			}
			spec.ConfigPatches = append(spec.ConfigPatches, p)
		}
		out = append(out, spec)
	}
	return out
}

// FuzzPatches: whatever patches say, no message that comes in is modified, what comes out keeps
// Envoy's rules, and twice the same comes out.
func FuzzPatches(f *testing.F) {
	specs := shapes(f)
	for seed := range uint64(200) {
		f.Add(seed)
	}
	bases := patchtest.Bases(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		drawn := draw(specs, rand.New(rand.NewPCG(seed, 1)))
		var patches []*patch.Patch
		for _, spec := range drawn {
			patch.Check(spec)
			patch.Weakens(spec)
			patches = append(patches, patch.Parse("shop", "drawn", time.Unix(1, 0), spec).Patches...)
		}
		for _, b := range bases {
			name, m, at := b.Name, b.Message, b.Place
			before := proto.Clone(m)
			got, results := patchtest.Apply(m, at, patches)
			if !proto.Equal(m, before) {
				t.Fatalf("%s: the message that came in is modified", name)
			}
			for _, r := range results {
				if r.Patch.Err != nil {
					t.Errorf("%s: %s applies, which cannot be read", name, r.Patch)
				}
			}
			if len(results) == 0 && got != m {
				t.Errorf("%s: no patch applies, and another message comes out", name)
			}
			if got == nil {
				continue
			}
			if err := got.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			again, _ := patchtest.Apply(m, at, patches)
			if !proto.Equal(got, again) {
				t.Errorf("%s: something else comes out the second time", name)
			}
			if selected, _ := patchtest.Apply(m, at, patch.Select(placeOf(m, at), patches).Patches()); name != "bootstrap" && !proto.Equal(got, selected) {
				t.Errorf("%s: the selected patches make something else", name)
			}
		}
		for _, in := range []networking.EnvoyFilter_PatchContext{inbound, outbound, gateway} {
			patch.AddedClusters(in, patches)
			patch.AddedListeners(in, patches)
			patch.AddedVirtualHosts(patch.Place{Context: in, Routes: "80"}, patches)
		}
		patch.Extensions(patches)
	})
}
