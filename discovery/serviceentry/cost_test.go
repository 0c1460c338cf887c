package serviceentry_test

import (
	"fmt"
	"runtime"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// perEntry is how many WorkloadEntries each ServiceEntry of a crowd selects.
const perEntry = 50

// crowd returns a mesh of n ServiceEntries in several namespaces, each of which selects
// perEntry WorkloadEntries of its own, and one of the WorkloadEntries.
func crowd(t testing.TB, n, namespaces int) (*mesh, *config.Config) {
	t.Helper()
	m := start(t, serviceentry.Options{})
	all := make([]*config.Config, 0, n*(perEntry+1))
	template := workload(t, "w", `{address: 10.0.0.1}`)
	for i := range n {
		app, namespace := fmt.Sprint("app", i), fmt.Sprint("ns", i%namespaces)
		all = append(all, with(selecting(t, fmt.Sprint("se", i), fmt.Sprint("a", i, ".example")), func(c *config.Config) {
			c.Namespace = namespace
			c.Spec.(*networking.ServiceEntry).WorkloadSelector.Labels = map[string]string{"app": app, "tier": "web"}
		}))
		for j := range perEntry {
			all = append(all, with(template, func(c *config.Config) {
				c.Namespace, c.Name = namespace, fmt.Sprint("w", i, "-", j)
				w := c.Spec.(*networking.WorkloadEntry)
				w.Address = fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j)
				w.Labels = map[string]string{"app": app, "tier": "web"}
			}))
		}
	}
	m.apply(all...)
	expect(t, len(m.endpoints("ns0", "a0.example")), perEntry)
	return m, all[1]
}

// weigh returns a function that changes the weight of a WorkloadEntry at each call.
func weigh(m *mesh, w *config.Config) func() {
	weight := uint32(1)
	return func() {
		weight++
		m.apply(with(w, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Weight = weight }))
	}
}

// relabel returns a function that moves a WorkloadEntry out of its ServiceEntry and back.
func relabel(m *mesh, w *config.Config) func() {
	return func() {
		m.apply(with(w, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Labels["app"] = "none" }))
		m.apply(w)
	}
}

// advise returns a function that gets advice on a WorkloadEntry, and on a ServiceEntry that
// selects it and has an address.
func advise(m *mesh, w *config.Config) func() {
	labels := w.Spec.(*networking.WorkloadEntry).Labels
	se := &networking.ServiceEntry{
		Hosts: []string{"a0.example"}, Addresses: []string{"10.1.0.1"}, Ports: []*networking.ServicePort{{Name: "http", Number: 80}},
		Resolution: networking.ServiceEntry_STATIC, WorkloadSelector: &networking.WorkloadSelector{Labels: labels},
	}
	entry := &config.Config{Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: w.Namespace, Name: "new"}, Spec: se}
	return func() { m.advice(w, entry) }
}

// would returns a function that applies a change of a WorkloadEntry to a fork.
func would(m *mesh, w *config.Config) func() {
	from := m.source.Handled()
	weighed := with(w, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Weight = 7 })
	to := cache.NewSnapshot(from.Revision()+1, from.Configs().Set(w.Key().Path(), weighed))
	fork := m.store.Fork()
	return func() { fork.Apply(from, to, &discoverytest.Recorder{}) }
}

// TestOneWorkloadEntryCostsTheSameInALargeMesh compares an event on one WorkloadEntry in two
// meshes: 100,000 of them under 2,000 ServiceEntries, and 1,000 under 20. In the larger mesh
// it allocates at most twice as much, in many namespaces or in one. The same holds for advice
// on the WorkloadEntry and for a fork. The test is not parallel, because it counts the
// allocations of the process.
func TestOneWorkloadEntryCostsTheSameInALargeMesh(t *testing.T) {
	for _, namespaces := range []int{2000, 1} {
		small, smallEntry := crowd(t, 20, min(20, namespaces))
		large, largeEntry := crowd(t, 2000, namespaces)
		for name, change := range map[string]func(*mesh, *config.Config) func(){"a weight": weigh, "labels": relabel, "advice": advise, "a fork": would} {
			t.Run(fmt.Sprintf("%s, in %d namespaces", name, namespaces), func(t *testing.T) {
				allocations, bytes := cost(change(small, smallEntry))
				many, manyBytes := cost(change(large, largeEntry))
				t.Logf("%v allocations of %d bytes among 2000 ServiceEntries, %v of %d among 20", many, manyBytes, allocations, bytes)
				if many > 2*allocations || manyBytes > 2*bytes {
					t.Error("that is more than twice as much")
				}
			})
		}
	}
}

// cost returns the average allocations and bytes of a call.
func cost(f func()) (allocations float64, bytes uint64) {
	return testing.AllocsPerRun(100, f), bytesPerRun(100, f)
}

// TestOneWorkloadEntryTouchesWhatSelectsIt: an event on a workload only looks at the
// ServiceEntries whose selectors are filed under one of its labels. A selector is filed under
// its rarest label.
func TestOneWorkloadEntryTouchesWhatSelectsIt(t *testing.T) {
	t.Parallel()
	m, w := crowd(t, 100, 1)
	expect(t, m.store.Candidates(w.Namespace, w.Spec.(*networking.WorkloadEntry).Labels), 1)
	expect(t, m.store.Candidates(w.Namespace, map[string]string{"tier": "web"}), 0)
	m.apply(with(selecting(t, "all", "all.example"), func(c *config.Config) {
		c.Namespace, c.Spec.(*networking.ServiceEntry).WorkloadSelector.Labels = w.Namespace, nil
	}))
	expect(t, m.store.Candidates(w.Namespace, map[string]string{"tier": "web"}), 1)
	expect(t, m.store.Candidates("elsewhere", w.Spec.(*networking.WorkloadEntry).Labels), 0)
}

// bytesPerRun returns the average number of bytes that a call allocates.
func bytesPerRun(runs int, f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(runs)
}

func BenchmarkOneWorkloadEntry(b *testing.B) {
	for _, n := range []int{20, 2000} {
		for _, namespaces := range []int{n, 1} {
			b.Run(fmt.Sprintf("among %d in %d namespaces", n*perEntry, namespaces), func(b *testing.B) {
				change := weigh(crowd(b, n, namespaces))
				b.ReportAllocs()
				for b.Loop() {
					change()
				}
			})
		}
	}
}
