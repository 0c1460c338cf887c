package xds_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// reference is the reference mesh and its proxies, from the objects to the resources of
// each proxy, without the wire, and to the verdicts on the objects.
type reference struct {
	*replica
	mesh     refmesh.Mesh
	groups   xdstest.Groups
	members  []xdstest.Member
	held     []map[string]resource.Set // what each proxy has, by type
	changes  int                       // made so far
	verdicts *index.Index
}

// newReference makes a mesh of services and proxies, which are spread over namespaces,
// localities and label sets. With routeDelta the proxies take virtual hosts one by one,
// else whole route configurations.
func newReference(tb testing.TB, services, proxies int, routeDelta bool) *reference {
	tb.Helper()
	return newReferenceOf(tb, refmesh.Mesh{Services: services, Localities: 4, LabelSets: 10}, proxies, routeDelta)
}

func newReferenceOf(tb testing.TB, of refmesh.Mesh, proxies int, routeDelta bool) *reference {
	tb.Helper()
	r := &reference{replica: newReplica(tb, serviceentry.Switches{}), mesh: of}
	r.replica.do(func() {
		r.sealer = sealing.New(filepath.Join(tb.TempDir(), "sealing.key"), memory.New(schema.Pilot(), memory.Options{}))
	})
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, object := range r.mesh.Objects() {
		object.CreationTimestamp = epoch.Add(time.Duration(i) * time.Second)
		r.set(r.sealed(object))
	}
	r.commit()
	r.push()
	r.judge()
	r.groups = xdstest.NewGroups(catalogue.Types(), func() *mesh.PushContext { return r.now })
	spread := refmesh.Proxies{Mesh: r.mesh, Spread: true, Interception: string(discovery.InterceptionRedirect)}
	for n := range proxies {
		proxy, err := discovery.ParseProxy(spread.Node(n))
		if err != nil {
			tb.Fatal(err)
		}
		proxy.RouteDelta = routeDelta
		r.join(proxy)
	}
	tb.Cleanup(func() {
		for _, p := range r.members {
			p.Close()
		}
		if n := r.groups.Built(); n != 0 {
			tb.Errorf("%d resources are held by nobody", n)
		}
	})
	return r
}

// sealed returns an object as it is stored: the data of a secret are sealed.
func (r *reference) sealed(object *config.Config) *config.Config {
	if spec, ok := object.Spec.(*secret.Spec); !ok || !spec.InClear() {
		return object
	}
	out, err := r.sealer.Seal(context.Background(), object, r.configs.Value(object.Key().Path()), false)
	if err != nil {
		r.t.Fatalf("seal %s: %v", object.Key(), err)
	}
	return out
}

func (r *reference) join(proxy *discovery.Proxy) {
	r.members = append(r.members, r.groups.Join(proxy))
	r.held = append(r.held, map[string]resource.Set{})
}

// judge derives the verdicts of the newest context.
func (r *reference) judge() {
	var entries discovery.Fork
	r.replica.do(func() { entries = r.entries.Fork() })
	r.verdicts = r.verdicts.Next(verdict.Facts{Mesh: r.now, Registries: entries})
}

// sync brings all proxies to the newest context, and counts by type the resources that they
// lack or have to give up.
func (r *reference) sync() map[string]int {
	lacking := map[string]int{}
	for i, p := range r.members {
		p.Follow()
		for _, t := range catalogue.Types() {
			set := p.Set(t.Name)
			for range resource.Diff(r.held[i][t.Name], set) {
				lacking[t.Name]++
			}
			r.held[i][t.Name] = set
		}
	}
	return lacking
}

// change makes a change of the mesh and carries it to the proxies.
func (r *reference) change(c refmesh.Change) map[string]int {
	if c.Delete {
		r.remove(c.Objects...)
	} else {
		for _, object := range c.Objects {
			object.CreationTimestamp = time.Date(2026, 2, 1, 0, 0, r.changes, 0, time.UTC)
			if old := r.configs.Value(object.Key().Path()); old != nil {
				object.CreationTimestamp = old.CreationTimestamp
			}
			r.set(r.sealed(object))
		}
	}
	r.commit()
	r.push()
	return r.sync()
}

// meshChanges are the changes whose cost must not grow with the mesh.
func meshChanges() map[string]func(m refmesh.Mesh, n int) refmesh.Change {
	return map[string]func(m refmesh.Mesh, n int) refmesh.Change{
		"endpoint":        func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangeEndpoint(refmesh.Target, n) },
		"VirtualService":  func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangeRoutes(refmesh.Target, n) },
		"DestinationRule": func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangeRule(refmesh.Target, n) },
		"service": func(m refmesh.Mesh, n int) refmesh.Change { // adds a service and deletes it, in turn
			if n%2 == 0 {
				return m.NewService(n / 2)
			}
			return m.DeleteService(n / 2)
		},
	}
}

func (r *reference) do(kind string) map[string]int {
	r.changes++
	return r.change(meshChanges()[kind](r.mesh, r.changes))
}

// TestOneChangeCostsTheSameInAnyMesh: one change allocates at most twice as much as in a
// mesh fifteen times smaller, or a hundred. Allocations are counted from the object to the
// verdicts and to the resources of proxies in twenty namespaces. Nothing is sent but what
// changed.
func TestOneChangeCostsTheSameInAnyMesh(t *testing.T) {
	services := longtest.Histories(1_500, 10_000)
	small, large := newReference(t, 100, 20, true), newReference(t, services, 20, true)
	small.sync()
	large.sync()
	for kind, want := range map[string]map[string]int{
		"endpoint":        {"EDS": 20 * 4},                                       // two ports, and two subsets of one version
		"VirtualService":  {"VHDS": 20 * 2},                                      // of its port, and of port 80, where no listener is
		"DestinationRule": {"CDS": 20*6 + 2, "EDS": 20 * 6},                      // and the inbound clusters of the proxy that serves it
		"service":         {"CDS": 20 * 2, "EDS": 20 * 2, "LDS": 20, "VHDS": 20}, // gone or new
	} {
		var got map[string]int
		few := testing.AllocsPerRun(10, func() {
			small.do(kind)
			small.judge()
		})
		many := testing.AllocsPerRun(10, func() {
			got = large.do(kind)
			large.judge()
		})
		t.Logf("%s: %.0f allocations among 100 services, %.0f among %d", kind, few, many, services)
		if many > 2*few {
			t.Errorf("%s: %.0f allocations among %d services, %.0f among 100", kind, many, services, few)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: resources that 20 proxies lack (-want +got):\n%s", kind, d)
		}
	}
}

// TestOneDelegateCostsTheSameInAnyMesh is TestOneChangeCostsTheSameInAnyMesh for a
// delegate, and for a pattern whose names proxies resolve. The mesh has other delegates and
// patterns.
func TestOneDelegateCostsTheSameInAnyMesh(t *testing.T) {
	services := longtest.Histories(1_000, 10_000)
	delegated := func(services int) *reference {
		r := newReferenceOf(t, refmesh.Mesh{Services: services, Delegated: true, Patterns: services / 10, Localities: 4, LabelSets: 10}, 10, true)
		r.sync()
		return r
	}
	small, large := delegated(100), delegated(services)
	for kind, c := range map[string]struct {
		change func(m refmesh.Mesh, n int) refmesh.Change
		want   map[string]int
	}{
		"delegate": {func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangeRoutes(refmesh.Target, n) }, map[string]int{"VHDS": 10 * 2}},
		"pattern":  {func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangePattern(refmesh.Target, n) }, map[string]int{"CDS": 10 * 2, "VHDS": 10 * 2}},
	} {
		var got map[string]int
		allocations := func(r *reference) float64 {
			return testing.AllocsPerRun(10, func() {
				r.changes++
				got = r.change(c.change(r.mesh, r.changes))
				r.judge()
			})
		}
		few, many := allocations(small), allocations(large)
		t.Logf("%s: %.0f allocations among 100 services, %.0f among %d", kind, few, many, services)
		if many > 2*few {
			t.Errorf("%s: %.0f allocations among %d services, %.0f among 100", kind, many, services, few)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: resources that 10 proxies lack (-want +got):\n%s", kind, d)
		}
	}
}

// TestOneScopeCostsTheSameInAnyMesh is TestOneChangeCostsTheSameInAnyMesh for the objects
// that say what proxies see: the Sidecar of one namespace, in a mesh where each has one,
// and the Gateway of a proxy that is connected and sees all services.
func TestOneScopeCostsTheSameInAnyMesh(t *testing.T) {
	services := longtest.Histories(1_500, 10_000)
	scoped := func(services int) *reference {
		r := newReferenceOf(t, refmesh.Mesh{Services: services, PerNamespace: 20, Localities: 4, LabelSets: 10}, 20, true)
		r.change(r.mesh.ChangeGateway(0))
		r.join(xdstest.Node{Type: discovery.Router, Namespace: refmesh.RootNamespace, Labels: map[string]string{"app": "edge"}, RouteDelta: true}.Proxy(t))
		r.sync()
		return r
	}
	small, large := scoped(100), scoped(services)
	for kind, change := range map[string]func(refmesh.Mesh, int) refmesh.Change{
		"Sidecar": refmesh.Mesh.ChangeSidecar, "Gateway": refmesh.Mesh.ChangeGateway,
	} {
		allocations := func(r *reference) float64 {
			return testing.AllocsPerRun(10, func() {
				r.changes++
				r.change(change(r.mesh, r.changes))
				r.judge()
			})
		}
		few, many := allocations(small), allocations(large)
		t.Logf("%s: %.0f allocations among 100 services, %.0f among %d", kind, few, many, services)
		if many > 2*few {
			t.Errorf("%s: %.0f allocations among %d services, %.0f among 100", kind, many, services, few)
		}
	}
}

// BenchmarkFirstSync builds all resources that 200 proxies need.
func BenchmarkFirstSync(b *testing.B) {
	for name, mesh := range map[string]refmesh.Mesh{
		"services=1000":     {Services: 1_000, Localities: 4, LabelSets: 10},
		"services=1000/tls": {Services: 1_000, Localities: 4, LabelSets: 10, Originate: true},
	} {
		b.Run(name, func(b *testing.B) {
			r := newReferenceOf(b, mesh, 200, true)
			b.ReportAllocs()
			for b.Loop() {
				r.sync()
				b.StopTimer()
				for i, p := range r.members {
					p.Close()
					r.held[i] = map[string]resource.Set{}
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkChange is one change from its object to the resources of 20 proxies in
// as many namespaces.
func BenchmarkChange(b *testing.B) {
	for kind := range meshChanges() {
		for _, services := range []int{100, 1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/services=%d", kind, services), func(b *testing.B) {
				r := newReference(b, services, 20, true)
				r.sync()
				b.ReportAllocs()
				for b.Loop() {
					r.do(kind)
				}
			})
		}
	}
}
