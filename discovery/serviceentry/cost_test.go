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

// crowd is a mesh of n ServiceEntries, each of which selects perEntry
// WorkloadEntries of its own, in a number of namespaces. It returns one of them.
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

// weigh changes one WorkloadEntry over and over.
func weigh(m *mesh, w *config.Config) func() {
	weight := uint32(1)
	return func() {
		weight++
		m.apply(with(w, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Weight = weight }))
	}
}

// relabel moves one WorkloadEntry out of its ServiceEntry and back, over and
// over.
func relabel(m *mesh, w *config.Config) func() {
	return func() {
		m.apply(with(w, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Labels["app"] = "none" }))
		m.apply(w)
	}
}

// advise asks for advice on one WorkloadEntry, and on a ServiceEntry that selects
// it and has an address, over and over.
func advise(m *mesh, w *config.Config) func() {
	labels := w.Spec.(*networking.WorkloadEntry).Labels
	se := &networking.ServiceEntry{
		Hosts: []string{"a0.example"}, Addresses: []string{"10.1.0.1"}, Ports: []*networking.ServicePort{{Name: "http", Number: 80}},
		Resolution: networking.ServiceEntry_STATIC, WorkloadSelector: &networking.WorkloadSelector{Labels: labels},
	}
	entry := &config.Config{Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: w.Namespace, Name: "new"}, Spec: se}
	return func() { m.advice(w, entry) }
}

// would applies a change of one WorkloadEntry to a fork, over and over.
func would(m *mesh, w *config.Config) func() {
	from := m.source.Handled()
	weighed := with(w, func(c *config.Config) { c.Spec.(*networking.WorkloadEntry).Weight = 7 })
	to := cache.NewSnapshot(from.Revision()+1, from.Configs().Set(w.Key().Path(), weighed))
	fork := m.store.Fork()
	return func() { fork.Apply(from, to, &discoverytest.Recorder{}) }
}

// TestOneWorkloadEntryCostsTheSameInALargeMesh: an event on one WorkloadEntry
// among 100,000 of 2,000 ServiceEntries allocates at most twice what it does
// among 1,000 of 20, in many namespaces and all in one, and so do advice on it and a fork.
// It is not parallel: it counts the allocations of the process.
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

// cost is what a function allocates, on average.
func cost(f func()) (allocations float64, bytes uint64) {
	return testing.AllocsPerRun(100, f), bytesPerRun(100, f)
}

// TestOneWorkloadEntryTouchesWhatSelectsIt: of the ServiceEntries of a namespace
// only those are looked at whose selector is filed under a label of the workload,
// and a selector is filed under its rarest.
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

// bytesPerRun is how much a function allocates, on average.
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
