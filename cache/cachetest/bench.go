package cachetest

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// perBatch is how many objects a batch has when a store is filled.
const perBatch = 1000

// Benchmark runs the benchmarks of a cache: the first list of 10,000 objects; and one
// change, from the store to its handler, among 1,000 and among 100,000 objects, which
// must allocate equally.
//
// reopen makes another cache over the store of a subject.
func Benchmark(b *testing.B, open func(testing.TB) Subject, reopen func(Subject) Subject) {
	b.Run("list 10000", func(b *testing.B) {
		filled := NewRig(b, open(b))
		filled.Fill(10_000)
		for b.Loop() {
			stop := NewRig(b, reopen(filled.Subject)).Start()
			b.StopTimer()
			stop()
			b.StartTimer()
		}
	})
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("change among %d", n), func(b *testing.B) {
			r := NewRig(b, open(b))
			updates := make(chan struct{}, 1)
			r.Handler(schema.ServiceEntry, func(_, _ *config.Config, event cache.Event) {
				if event == cache.EventUpdate {
					updates <- struct{}{}
				}
			})
			r.Fill(n)
			r.Start()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Put("n000", "object-000000", i+1)
				<-updates
			}
		})
	}
}

// Fill stores n objects of round 0, a thousand to a namespace: n000, object-000000 and
// so on.
func (r *Rig) Fill(n int) (revision string) {
	r.t.Helper()
	for from := 0; from < n; from += perBatch {
		var ops []storage.Op
		for i := from; i < min(n, from+perBatch); i++ {
			ops = append(ops, Put(fmt.Sprintf("n%03d", i/perBatch), fmt.Sprintf("object-%06d", i), 0))
		}
		revision = r.Apply(ops...)
	}
	return revision
}
