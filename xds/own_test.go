package xds_test

import (
	"runtime"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestWhatIsAWorkloadsOwnIsNotAskedForAgain: a proxy's own resources are not looked at if a
// change concerns nothing that they were built from. So the second proxy of a class takes
// the change of an endpoint elsewhere without an allocation.
func TestWhatIsAWorkloadsOwnIsNotAskedForAgain(t *testing.T) {
	in := inputs(100)
	push := mesh.New(in)
	groups := xdstest.NewGroups(catalogue.Types(), func() *mesh.PushContext { return push })
	// The endpoints of every service are at 10.0.0.1 and 10.0.0.2.
	first := groups.Join(xdstest.Node{Namespace: "n1", IP: "10.0.0.1"}.Proxy(t))
	second := groups.Join(xdstest.Node{Namespace: "n1", IP: "10.0.0.2"}.Proxy(t))
	change := func(address string) (allocations uint64) {
		h, namespace := host.Name("s7.example"), "n7"
		row := endpointRow(h, namespace, 1)
		if address != "" {
			moved := *row.Endpoints[0]
			moved.Address = address
			row.Endpoints = append(row.Endpoints, &moved)
		}
		in.Endpoints = in.Endpoints.Set(rows.Key(h, namespace), row)
		push = push.Next(in)
		first.Follow()
		before := mallocs()
		second.Follow()
		return mallocs() - before
	}
	change("10.9.0.1")
	var elsewhere, here uint64
	for range 5 {
		elsewhere += change("")
		elsewhere += change("10.9.0.1")
	}
	for range 5 {
		here += change("10.0.0.2")
		here += change("")
	}
	if elsewhere >= 10 || here == 0 {
		t.Errorf("%d allocations for ten changes elsewhere, %d for ten at the workload's address", elsewhere, here)
	}
	second.Close()
	first.Close()
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
