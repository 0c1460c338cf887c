package mirror_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestWhoFollowsHearsOfAStoreWithTheSameRevisions: the cache has found that its
// revisions stand for something else. A follower gets that although no revision is new,
// and so does a cache that is made from this one.
func TestWhoFollowsHearsOfAStoreWithTheSameRevisions(t *testing.T) {
	t.Parallel()
	f := newRestored(t, func(r *cachetest.Rig) { r.Put("a", "x", 1) })
	here := f.Put("a", "x", 2)
	if there := f.later.Put("a", "x", 3); here != there {
		t.Fatalf("revisions %s and %s, want the same", here, there)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	merged := statuses.New(etcdtest.Dial(t, f.relay.endpoint()), statuses.Options{Base: mirrorOf(f.Rig), Schemas: schema.Pilot()})
	var running sync.WaitGroup
	running.Go(func() { _ = merged.Run(ctx) })
	defer running.Wait()
	defer cancel()
	f.Start()
	revision := cachetest.Revision(t, here)
	if _, err := merged.Await(ctx, revision); err != nil {
		t.Fatal(err)
	}
	at := f.Cache.Snapshot()
	f.relay.cut()
	f.relay.lead(f.backup.Endpoint)
	f.converge(t)

	round := func(s *cache.Snapshot) string { return cachetest.Round(s.Get(cachetest.Key("a", "x"))) }
	if f.Cache.Snapshot().Revision() != at.Revision() {
		t.Fatalf("the cache went from revision %d to %d, want the same", at.Revision(), f.Cache.Snapshot().Revision())
	}
	wait, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	switch next, err := f.Cache.Next(wait, at); {
	case errors.Is(err, storage.ErrCompacted):
	case err != nil:
		t.Errorf("who follows the cache is told nothing: %v", err)
	case round(next) != "3":
		t.Errorf("who follows the cache is told of round %s", round(next))
	}
	for round(merged.Snapshot()) != "3" {
		select {
		case <-ctx.Done():
			t.Fatalf("what is served to clients is of epoch %d and round %s still, the cache below of epoch %d and round %s",
				merged.Snapshot().Epoch(), round(merged.Snapshot()), f.Cache.Snapshot().Epoch(), round(f.Cache.Snapshot()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
