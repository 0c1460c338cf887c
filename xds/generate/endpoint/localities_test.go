package endpoint_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// many are endpoints of a service in four localities.
func many() []*discovery.Endpoint {
	var out []*discovery.Endpoint
	for i := range 1000 {
		e := &discovery.Endpoint{Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), Port: 80, ServicePortName: "http", Weight: 1}
		e.Locality.Label = fmt.Sprintf("region/zone-%d", i%4)
		out = append(out, e)
	}
	return out
}

// TestOneEndpointOfManyCostsItsLocality: rows with many endpoints share unchanged
// localities and their encoding. An assembled assignment equals one that is built at
// once.
func TestOneEndpointOfManyCostsItsLocality(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("a", "a.example", "10.1.0.1"))
	push, node := w.Context(), xdstest.Node{}
	key := rows.Key("a.example", "default")
	build := func(row *mesh.EndpointRow) string {
		in := push.Inputs()
		in.Endpoints = pmap.Map[*mesh.EndpointRow]{}.Set(key, row)
		push = push.Next(in)
		r, err := generate.Build(endpoint.Generator{}, mesh.NewView(push, push.ClassOf(node.Proxy(t))), "outbound|80||a.example")
		if err != nil {
			t.Fatal(err)
		}
		return r.Version
	}
	row := func(endpoints []*discovery.Endpoint) *mesh.EndpointRow {
		return &mesh.EndpointRow{Hostname: "a.example", Namespace: "default", Endpoints: endpoints}
	}
	first, second := row(many()), row(many())
	moved := *second.Endpoints[5]
	moved.Address = "10.2.0.1"
	second.Endpoints[5] = &moved
	first.Follow(nil)
	second.Follow(first)
	if got, want := build(first), build(row(first.Endpoints)); got != want {
		t.Errorf("of localities %s, as a whole %s", got, want)
	}
	if got, want := build(second), build(row(second.Endpoints)); got != want {
		t.Errorf("of localities %s, as a whole %s, after a change", got, want)
	}
	heavy := row(slices.Clone(second.Endpoints))
	for _, i := range []int{0, 1} {
		e := *heavy.Endpoints[i]
		e.Weight = math.MaxUint32
		heavy.Endpoints[i] = &e
	}
	heavy.Follow(second)
	if got, want := build(heavy), build(row(heavy.Endpoints)); got != want {
		t.Errorf("of localities %s, as a whole %s, of weights that are scaled down", got, want)
	}
	var shared []bool
	for i, l := range second.Localities() {
		shared = append(shared, l == first.Localities()[i])
	}
	if want := []bool{true, false, true, true}; !slices.Equal(shared, want) {
		t.Errorf("localities are shared %v, want %v", shared, want)
	}
	l := second.Localities()[0]
	l.Derived("key", func() any { return 1 })
	if got := l.Derived("key", func() any { return 2 }); got != 1 {
		t.Errorf("derived %v anew", got)
	}
}
