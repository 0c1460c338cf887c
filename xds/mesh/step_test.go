package mesh_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// TestSinceTellsTheRowsOfOneStep: Since knows the rows of one step, and reports false
// over several.
func TestSinceTellsTheRowsOfOneStep(t *testing.T) {
	t.Parallel()
	in := mesh.Inputs{MeshFile: meshconfig.Default(), Configs: cache.NewSnapshot(1, pmap.Map[*config.Config]{})}
	set := func(h host.Name, address string) {
		key := rows.Key(h, "shop")
		if _, known := in.Services.Get(key); !known {
			in.Services = in.Services.Set(key, rows.NewService([]*discovery.Service{{
				Hostname: h, Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
				Attributes: discovery.Attributes{Name: string(h), Namespace: "shop"},
			}}, nil))
		}
		in.Endpoints = in.Endpoints.Set(key, &mesh.EndpointRow{Hostname: h, Namespace: "shop", Endpoints: []*discovery.Endpoint{
			{Address: address, Port: 80, ServicePortName: "http", Namespace: "shop"},
		}})
	}
	set("a.example", "10.0.0.1")
	set("b.example", "10.0.0.2")
	first := mesh.New(in)
	set("a.example", "10.0.0.3")
	second := first.Next(in)
	changed, known := second.Since(first)
	if !known {
		t.Fatal("the step from one context to the next is not known")
	}
	view := mesh.NewView(second, mesh.Class{})
	read := func(table mesh.Table, key string) mesh.Rows {
		return view.RowsOf([]mesh.Dependency{{Query: mesh.Query{Row: mesh.RowKey{Table: table, Key: key}}}})
	}
	a, b := rows.Key("a.example", "shop"), rows.Key("b.example", "shop")
	for _, c := range []struct {
		name string
		rows mesh.Rows
		met  bool
	}{
		{"the endpoints that changed", read(mesh.Endpoints, a), true},
		{"the address that they left", read(mesh.Instances, "10.0.0.1"), true},
		{"the address that they came to", read(mesh.Instances, "10.0.0.3"), true},
		{"other endpoints", read(mesh.Endpoints, b), false},
		{"another address", read(mesh.Instances, "10.0.0.2"), false},
		{"the service, which is the same", read(mesh.Services, a), false},
		{"nothing", nil, false},
	} {
		if c.rows.Meets(changed) != c.met || changed.Meets(c.rows) != c.met {
			t.Errorf("%s: %t", c.name, !c.met)
		}
	}
	set("c.example", "10.0.0.4")
	third := second.Next(in)
	if changed, known := third.Since(second); !known || !changed.Meets(read(mesh.Services, rows.Key("c.example", "shop"))) {
		t.Error("a new service is not told")
	}
	in.MeshFile = meshconfig.Default()
	in.MeshFile.HTTP3 = true
	for name, c := range map[string][2]*mesh.PushContext{
		"two steps": {first, third}, "backwards": {second, first}, "one and the same": {first, first}, "none": {nil, first},
		"another mesh configuration": {third, third.Next(in)},
	} {
		if _, known := c[1].Since(c[0]); known {
			t.Errorf("%s: known", name)
		}
	}
}

// TestAClassIsAskedForAgain: the class is derived again if the endpoints at the proxy's
// addresses changed. The result is the same over one step or several.
func TestAClassIsAskedForAgain(t *testing.T) {
	t.Parallel()
	in := mesh.Inputs{MeshFile: meshconfig.Default(), Configs: cache.NewSnapshot(1, pmap.Map[*config.Config]{})}
	endpoint := func(address string) {
		in.Endpoints = in.Endpoints.Set(rows.Key("a.example", "shop"), &mesh.EndpointRow{
			Hostname: "a.example", Namespace: "shop",
			Endpoints: []*discovery.Endpoint{{Address: address, Port: 80, ServicePortName: "http", Namespace: "shop"}},
		})
	}
	proxy := &discovery.Proxy{Type: discovery.Sidecar, Namespace: "shop", IPAddresses: []string{"10.0.0.1"}}
	stale := mesh.Class{Namespace: "as it was before"} // what comes back where nobody asks
	endpoint("10.0.0.9")
	from := mesh.New(in)
	endpoint("10.0.0.8")
	elsewhere := from.Next(in)
	if got := elsewhere.ClassAfter(from, proxy, stale); got != stale {
		t.Error("asked for though nothing changed at its address")
	}
	endpoint("10.0.0.1")
	here := elsewhere.Next(in)
	for name, earlier := range map[string]*mesh.PushContext{"one step": elsewhere, "two steps": from} {
		if got := here.ClassAfter(earlier, proxy, stale); got != here.ClassOf(proxy) {
			t.Errorf("%s: not asked for though an endpoint came to its address", name)
		}
	}
}
