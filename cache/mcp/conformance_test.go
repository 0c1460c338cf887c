package mcp_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mcp"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var variants = []mcp.Variant{mcp.Delta, mcp.StateOfTheWorld}

// follow returns a cache that waits for Run.
func follow(t testing.TB, p *peer, variant mcp.Variant, set ...func(*mcp.Options)) (*mcp.Cache, *cache.Worker) {
	t.Helper()
	o := mcp.Options{
		Address: p.address, Variant: variant, Worker: cache.NewWorker(), Schemas: schema.Pilot(),
		RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
	}
	for _, set := range set {
		set(&o)
	}
	c, err := mcp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, o.Worker
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, variant := range variants {
		t.Run(string(variant), func(t *testing.T) {
			t.Parallel()
			cachetest.Run(t, func(t testing.TB) cachetest.Subject { return subject(t, variant) })
		})
	}
}

func subject(t testing.TB, variant mcp.Variant) cachetest.Subject {
	p := newPeer(t, nil)
	c, worker := follow(t, p, variant)
	store := &served{Store: memory.New(schema.Pilot(), memory.Options{}), t: t, publish: p.set}
	return cachetest.Subject{Cache: c, Store: store, Worker: worker, ReadOnly: true, Settled: func(ctx context.Context, version string) (*cache.Snapshot, error) {
		return store.contents.Shown(ctx, c, version)
	}}
}

// TestInAnAggregate runs the suite of caches on the aggregate of a store and a peer.
func TestInAnAggregate(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		p := newPeer(t, nil)
		c, _ := follow(t, p, mcp.Delta)
		store, worker := memory.New(schema.Pilot(), memory.Options{}), cache.NewWorker()
		own := cachememory.New(store, cachememory.Options{Worker: cache.NewWorker()})
		all, err := aggregate.MakeCache(aggregate.Options{
			Worker: worker, Store: own, FirstSync: time.Hour,
			Sources: []aggregate.Source{{Name: "store", Cache: own}, {Name: "peer", Cache: c}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return cachetest.Subject{Cache: all, Store: store, Worker: worker}
	})
}

// served is a store whose objects a peer serves.
type served struct {
	*memory.Store
	t       testing.TB
	publish func(typeURL string, resources map[string]resource)

	mu       sync.Mutex // keeps what is published in the order of the versions
	contents cachetest.Contents
}

// Apply has the peer send the changes.
func (s *served) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, results, err := s.Store.Apply(ctx, ops)
	if err != nil {
		return version, results, err
	}
	resources := map[string]resource{}
	for _, op := range ops {
		key := op.Target()
		var r resource
		if object, err := s.Get(ctx, key.Kind, key.Name, key.Namespace); err == nil {
			r = resourceOf(s.t, object)
		}
		resources[key.Namespace+"/"+key.Name] = r
	}
	all, err := s.List(ctx, schema.ServiceEntry, "")
	if err != nil {
		return "", nil, err
	}
	s.contents.Note(version, all)
	s.publish(entries, resources)
	return version, results, nil
}

// List returns the objects as the cache shows them.
func (s *served) List(ctx context.Context, kind config.GroupVersionKind, namespace string) ([]*config.Config, error) {
	objects, err := s.Store.List(ctx, kind, namespace)
	for i, object := range objects {
		objects[i] = object.Clone()
		if err := mcp.Stamp(objects[i], object.ResourceVersion); err != nil {
			return nil, err
		}
	}
	return objects, err
}
