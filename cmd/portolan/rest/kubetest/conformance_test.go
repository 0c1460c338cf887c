package kubetest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// newCache returns a cache of an API that waits for Run.
func newCache(t testing.TB, api *kubetest.API, set ...func(*kube.Options)) (*kube.Cache, *cache.Worker) {
	t.Helper()
	c, err := cluster.New(options(api))
	if err != nil {
		t.Fatal(err)
	}
	o := kube.Options{Cluster: c, Worker: cache.NewWorker(), Schemas: schema.Pilot(), Discover: 50 * time.Millisecond}
	for _, set := range set {
		set(&o)
	}
	return kube.New(o), o.Worker
}

func TestConformance(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		api := kubetest.Start(t)
		c, worker := newCache(t, api)
		store := &served{Store: api.Store}
		return cachetest.Subject{
			Cache: c, Store: store, Worker: worker, ReadOnly: true, OneByOne: true,
			Settled: func(ctx context.Context, version string) (*cache.Snapshot, error) {
				return store.contents.Shown(ctx, c, version)
			},
		}
	})
}

// TestInAnAggregate runs the suite of caches on the aggregate of a store and a cluster.
func TestInAnAggregate(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		c, _ := newCache(t, kubetest.Start(t))
		store, worker := memory.New(schema.Pilot(), memory.Options{}), cache.NewWorker()
		own := cachememory.New(store, cachememory.Options{Worker: cache.NewWorker()})
		all, err := aggregate.MakeCache(aggregate.Options{
			Worker: worker, Store: own, FirstSync: time.Hour,
			Sources: []aggregate.Source{{Name: "store", Cache: own}, {Name: "cluster", Cache: c}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return cachetest.Subject{Cache: all, Store: store, Worker: worker}
	})
}

// served is the store of an API, with the versions that the cache gives.
type served struct {
	*memory.Store
	mu       sync.Mutex // keeps the notes in the order of the versions
	contents cachetest.Contents
}

// Apply notes what the store then has.
func (s *served) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, results, err := s.Store.Apply(ctx, ops)
	if err != nil {
		return version, results, err
	}
	all, err := s.List(ctx, schema.ServiceEntry, "")
	if err == nil {
		s.contents.Note(version, all)
	}
	return version, results, err
}

// List returns the objects as the cache shows them.
func (s *served) List(ctx context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	objects, err := s.Store.List(ctx, kind, namespace)
	for i, object := range objects {
		objects[i] = object.Clone()
		if err := kube.Stamp(objects[i]); err != nil {
			return nil, err
		}
	}
	return objects, err
}
