package serviceentry_test

import (
	"fmt"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
)

// crowd is a mesh of n ServiceEntries that select, each in a namespace with one
// WorkloadEntry.
func crowd(t testing.TB, n int) (*mesh, *config.Config) {
	m := start(t, serviceentry.Options{})
	var all []*config.Config
	for i := range n {
		move := func(c *config.Config) { c.Namespace = fmt.Sprint("ns", i) }
		all = append(all, with(selecting(t, "se", "a.example"), move),
			with(workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`), move))
	}
	m.apply(all...)
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

// TestOneWorkloadEntryCostsTheSameInALargeMesh is not parallel: it counts the
// allocations of the process.
func TestOneWorkloadEntryCostsTheSameInALargeMesh(t *testing.T) {
	small := testing.AllocsPerRun(200, weigh(crowd(t, 20)))
	large := testing.AllocsPerRun(200, weigh(crowd(t, 2000)))
	if large > 2*small {
		t.Errorf("%v allocations among 2000 ServiceEntries, %v among 20", large, small)
	}
}

func BenchmarkOneWorkloadEntry(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprintf("among %d", n), func(b *testing.B) {
			change := weigh(crowd(b, n))
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
		})
	}
}
