package serviceentry_test

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
)

// pod returns an instance of another registry with app=a, in namespace shop.
func pod(name, address string) *discovery.WorkloadInstance {
	return &discovery.WorkloadInstance{
		Name: name, Namespace: "shop", Provider: discovery.Kubernetes,
		Endpoint: discovery.Endpoint{
			Address: address, Labels: map[string]string{"app": "a"}, Weight: 1,
			Locality: discovery.Locality{Cluster: "k1"}, Namespace: "shop", WorkloadName: name,
		},
	}
}

// handleWorkload passes an event of an instance to the store, and returns the calls of the updater.
func (m *mesh) handleWorkload(w *discovery.WorkloadInstance, event cache.Event) []string {
	m.do(func() { m.store.WorkloadInstanceHandler(w, event) })
	return m.xds.Take()
}

func TestServiceEntriesSelectInstancesOfOtherRegistries(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(selecting(t, "se", "a.example"))
	w := pod("p", "10.0.0.1")
	w.PortMap = map[string]uint32{"http": 8080}
	expect(t, m.handleWorkload(w, cache.EventAdd), []string{"endpoints shop/a.example 1"})
	expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.1:8080"})
	want := w.Endpoint
	want.Port, want.ServicePortName, want.ServicePort = 8080, "http", 80
	expect(t, m.row("shop", "a.example").Endpoints[0], &want)
}

func TestInstancesThatCameBeforeTheServiceEntryAreSelected(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventAdd), []string(nil))
	m.apply(selecting(t, "se", "a.example"))
	expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.1:80"})
}

// TestInstancesAreDedupedByIP: of several instances at one address the first by registry,
// cluster and name counts, in whatever order they came. When it goes, the next one counts.
func TestInstancesAreDedupedByIP(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(selecting(t, "se", "a.example"))
	m.handleWorkload(pod("q", "10.0.0.1"), cache.EventAdd)
	m.handleWorkload(pod("p", "::ffff:10.0.0.1"), cache.EventAdd)
	name := func() string { return m.row("shop", "a.example").Endpoints[0].WorkloadName }
	expect(t, len(m.endpoints("shop", "a.example")), 1)
	expect(t, name(), "p")
	expect(t, m.handleWorkload(pod("r", "10.0.0.1"), cache.EventAdd), []string(nil))
	m.handleWorkload(pod("p", "::ffff:10.0.0.1"), cache.EventDelete)
	expect(t, name(), "q")
	elsewhere := pod("a", "10.0.0.1")
	elsewhere.Namespace = "other"
	m.handleWorkload(elsewhere, cache.EventAdd)
	expect(t, name(), "q")
}

// TestInstancesOfOneHost: pods in the network of one host have one address. None is lost to those
// that select it.
func TestInstancesOfOneHost(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	other := selecting(t, "other", "b.example")
	other.Spec.(*networking.ServiceEntry).WorkloadSelector.Labels = map[string]string{"app": "b"}
	m.apply(selecting(t, "se", "a.example"), other)
	q := pod("q", "10.0.0.1")
	q.Endpoint.Labels = map[string]string{"app": "b"}
	m.handleWorkload(pod("p", "10.0.0.1"), cache.EventAdd)
	expect(t, m.handleWorkload(q, cache.EventAdd), []string{"endpoints shop/b.example 1"})
	expect(t, m.row("shop", "b.example").Endpoints[0].WorkloadName, "q")
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventDelete), []string{"endpoints shop/a.example 0"})
	expect(t, m.row("shop", "b.example").Endpoints[0].WorkloadName, "q")
}

func TestAChangedAddressDeletesTheOld(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(selecting(t, "se", "a.example"))
	m.handleWorkload(pod("p", "10.0.0.1"), cache.EventAdd)
	m.handleWorkload(pod("q", "10.0.0.1"), cache.EventAdd) // p counts instead
	expect(t, m.handleWorkload(pod("p", "10.0.0.2"), cache.EventUpdate), []string{"endpoints shop/a.example 2"})
	expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.2:80", "http=10.0.0.1:80"})
	expect(t, m.handleWorkload(pod("q", "10.0.0.2"), cache.EventUpdate), []string{"endpoints shop/a.example 1"})
	expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.2:80"})
}

func TestRepeatedInstanceEventsDoNothing(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(selecting(t, "se", "a.example"))
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventDelete), []string(nil))
	m.handleWorkload(pod("p", "10.0.0.1"), cache.EventAdd)
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventAdd), []string(nil))
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventUpdate), []string(nil))
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventDelete), []string{"endpoints shop/a.example 0"})
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventDelete), []string(nil))
}

func TestSelectorsOfOtherNamespacesDoNotSelectInstances(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(with(selecting(t, "se", "a.example"), func(c *config.Config) { c.Namespace = "other" }))
	expect(t, m.handleWorkload(pod("p", "10.0.0.1"), cache.EventAdd), []string(nil))
}

// TestAWorkloadEntryOutranksAnInstanceAtItsAddress: where only one of the two is selected,
// that one counts.
func TestAWorkloadEntryOutranksAnInstanceAtItsAddress(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	w := workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`)
	m.apply(selecting(t, "se", "a.example"), w)
	m.handleWorkload(pod("p", "10.0.0.1"), cache.EventAdd)
	m.handleWorkload(pod("q", "10.0.0.2"), cache.EventAdd)
	names := func() (out []string) {
		for _, e := range m.row("shop", "a.example").Endpoints {
			out = append(out, e.WorkloadName)
		}
		return out
	}
	expect(t, names(), []string{"w", "q"})
	w2 := workload(t, "w2", `{address: 10.0.0.1, labels: {app: a, v: "2"}}`)
	m.apply(w2)
	expect(t, names(), []string{"w", "w2", "q"}) // it hides no other WorkloadEntry
	m.remove(w, w2)
	expect(t, names(), []string{"p", "q"})
}

func TestOtherRegistriesSelectOnlyWorkloadEntriesAtAnIP(t *testing.T) {
	t.Parallel()
	got := map[string]bool{}
	m := start(t, serviceentry.Options{}, func(s *serviceentry.Store) {
		s.AppendWorkloadHandler(func(w *discovery.WorkloadInstance, _ cache.Event) { got[w.Name] = !w.DNSServiceEntryOnly })
	})
	m.apply(workload(t, "ip", `{address: 10.0.0.1}`), workload(t, "host", `{address: vm.example}`), workload(t, "socket", `{address: "unix:///a.sock"}`))
	expect(t, got, map[string]bool{"ip": true, "host": false, "socket": false})
}

func TestOwnWorkloadEntriesAreNoInstancesOfOthers(t *testing.T) {
	t.Parallel()
	m := start(t, serviceentry.Options{})
	m.apply(selecting(t, "se", "a.example"))
	w := pod("w", "10.0.0.1")
	w.Provider = discovery.External
	expect(t, m.handleWorkload(w, cache.EventAdd), []string(nil))
}

// peer is a registry that records the workloads it is told of.
type peer struct {
	handlers []discovery.WorkloadHandler
	events   []string
}

func (p *peer) AppendWorkloadHandler(f discovery.WorkloadHandler) { p.handlers = append(p.handlers, f) }

func (p *peer) WorkloadInstanceHandler(w *discovery.WorkloadInstance, event cache.Event) {
	p.events = append(p.events, event.String()+" "+w.Name)
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		off       serviceentry.Switches
		endpoints []string // w is a WorkloadEntry, p a pod
		told      []string
	}{
		{"all are on", serviceentry.Switches{}, []string{"http=10.0.0.1:80 out of use", "http=10.0.0.2:80"}, nil},
		{"ServiceEntries select no pods", serviceentry.Switches{SelectInstances: true}, []string{"http=10.0.0.1:80 out of use"}, nil},
		{"WorkloadEntries are not offered", serviceentry.Switches{OfferWorkloadEntries: true, HealthChecks: true}, []string{"http=10.0.0.1:80", "http=10.0.0.2:80"}, nil},
		{"no health checks", serviceentry.Switches{HealthChecks: true}, []string{"http=10.0.0.1:80", "http=10.0.0.2:80"}, []string{"add w"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := &peer{}
			m := start(t, serviceentry.Options{Off: tc.off}, func(s *serviceentry.Store) { s.ExchangeWorkloads(p) })
			w := checked(t, "w", "u1", "10.0.0.1") // never healthy
			m.apply(selecting(t, "se", "a.example"), w)
			m.do(func() {
				for _, f := range p.handlers {
					f(pod("p", "10.0.0.2"), cache.EventAdd)
				}
				m.store.WorkloadInstanceHandler(pod("p", "10.0.0.2"), cache.EventUpdate)
			})
			expect(t, m.endpoints("shop", "a.example"), tc.endpoints)
			expect(t, p.events, tc.told)
		})
	}
}
