package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(testing.TB) cachetest.Subject { return withHistory(0) }

func withHistory(revisions int) cachetest.Subject {
	return over(memory.New(schema.Pilot(), memory.Options{History: revisions}))
}

func over(store *memory.Store) cachetest.Subject {
	worker := cache.NewWorker()
	return cachetest.Subject{
		Cache: cachememory.New(store, cachememory.Options{Worker: worker}),
		Store: store, Worker: worker,
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, open)
}

// TestCacheOverAForgetfulStore: the cache skips revisions that the store has dropped,
// and nothing is lost.
func TestCacheOverAForgetfulStore(t *testing.T) {
	t.Parallel()
	r := cachetest.NewRig(t, withHistory(1))
	fold := r.Fold()
	r.Start()
	for round := range 2000 {
		r.Put("a", "x", round)
	}
	r.Settle(r.Store.Version())
	r.Equal()
	fold.Check()
}

func BenchmarkCache(b *testing.B) {
	cachetest.Benchmark(b, open, func(s cachetest.Subject) cachetest.Subject { return over(s.Store.(*memory.Store)) })
}
