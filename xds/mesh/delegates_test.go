package mesh_test

import (
	"fmt"
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// delegating adds a root and its delegate for each of n services.
func (l *large) delegating(n int) {
	for i := range n {
		l.put("VirtualService", 100_000+i, &config.Config{Spec: &networking.VirtualService{
			Hosts: []string{fmt.Sprintf("r%d.shop.example", i)},
			Http:  []*networking.HTTPRoute{{Delegate: &networking.Delegate{Name: fmt.Sprint("o", 200_000+i)}}},
		}})
		l.delegate(i, "first")
	}
}

func (l *large) delegate(i int, route string) {
	l.put("VirtualService", 200_000+i, &config.Config{Spec: &networking.VirtualService{
		Http: []*networking.HTTPRoute{{Name: route, Route: []*networking.HTTPRouteDestination{
			{Destination: &networking.Destination{Host: string(name(i))}},
		}}},
	}})
}

// TestADelegateCostsTheSameInALargeMesh: the context after a change of one delegate
// allocates at most twice what it does among 100 roots.
func TestADelegateCostsTheSameInALargeMesh(t *testing.T) {
	few, many := 0.0, 0.0
	size := longtest.Histories(1000, 10_000)
	for n, allocs := range map[int]*float64{100: &few, size: &many} {
		l := newLarge(n)
		l.delegating(n)
		push := mesh.New(l.commit())
		l.delegate(n/2, "second")
		inputs := l.commit()
		*allocs = testing.AllocsPerRun(20, func() { push.Next(inputs) })
	}
	if many > 2*few {
		t.Errorf("%v allocations among %d roots, %v among 100", many, size, few)
	}
}

// TestADelegateConcernsItsRoots: when a delegate changes, only the rows of the roots that
// delegate to it change.
func TestADelegateConcernsItsRoots(t *testing.T) {
	t.Parallel()
	root := func(name, host, delegate string) string {
		return xdstest.Object("VirtualService", name, "{hosts: ["+host+"], http: [{delegate: {name: "+delegate+", namespace: team}}, {directResponse: {status: 404}}]}")
	}
	part := func(name, spec string) string {
		return xdstest.Object("VirtualService", "team/"+name, "{"+spec+"http: [{route: [{destination: {host: "+name+".example}}]}]}")
	}
	w := xdstest.NewWorld(t, root("shop/a", "a.example", "one"), root("shop/b", "b.example", "one"), root("shop/c", "c.example", "two"), part("one", ""), part("two", ""),
		xdstest.Object("VirtualService", "shop/plain", "{hosts: [plain.example], http: [{route: [{destination: {host: a.example}}]}]}"))
	for _, tc := range []struct {
		change string
		want   []string
	}{
		{part("one", "exportTo: ['*'], "), []string{"mesh|a.example", "mesh|b.example"}},
		{part("two", "exportTo: ['.'], "), []string{"mesh|c.example"}},
		{part("none", ""), nil},
		{root("shop/c", "c.example", "none"), []string{"mesh|c.example"}},
		{part("none", "hosts: [none.example], "), []string{"mesh|c.example", "mesh|none.example"}},
	} {
		before := w.Context()
		w.Apply(tc.change)
		var got []string
		for c := range mesh.Diff(before, w.Context()).Routes() {
			got = append(got, c.Key)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: rows %v, want %v", tc.change, got, tc.want)
		}
	}
	// A Sidecar that imports a root's host sees the hosts to which the root's delegate
	// routes.
	w.Apply(xdstest.Object("Sidecar", "shop/narrow", "{egress: [{hosts: ['./a.example']}]}"))
	w.Apply(xdstest.HTTPService("team/one", "one.example", "10.1.0.1"))
	w.Apply(xdstest.HTTPService("team/two", "two.example", "10.1.0.2"))
	view := w.View(xdstest.Node{Namespace: "shop"})
	if view.Service("one.example") == nil || view.Service("two.example") != nil {
		t.Error("a Sidecar does not import what a delegate leads to")
	}
	recording := view.Recording()
	recording.VirtualServiceAt(recording.Egress()[0], "a.example")
	var names []string
	for _, key := range origins.Of(recording.Dependencies()) {
		names = append(names, key.String())
	}
	if want := []string{"sidecar/shop/narrow", "virtualservice/shop/a", "virtualservice/team/one"}; !slices.Equal(names, want) {
		t.Errorf("origins %v, want %v", names, want)
	}
}
