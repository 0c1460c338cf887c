package resttest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Files is a read-only source that a test publishes. The place of an object is a file
// with its name.
type Files struct{ *cache.Feed }

// Run implements cache.ConfigStoreCache.
func (Files) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Publish publishes the objects of texts, and nothing else, all with one version.
func (f Files) Publish(t testing.TB, version string, texts ...string) {
	t.Helper()
	var configs pmap.Map[*config.Config]
	for _, text := range texts {
		documents, err := config.Decode("test", []byte(text), schema.Pilot().Type)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			object := d.Config
			object.ResourceVersion = version
			configs = configs.Set(object.Key().Path(), object)
		}
	}
	f.Feed.Publish(cache.NewSnapshot(f.Snapshot().Revision()+1, configs))
}

// StartBeside runs an API over a store and a source with the objects of texts. first
// says that the source goes before the store.
func StartBeside(t testing.TB, first bool, texts ...string) (*Server, Files) {
	t.Helper()
	source := Files{cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()})}
	source.Publish(t, "v1", texts...)
	s := Start(t, 0, func(o *rest.Options) {
		stored := cachememory.New(o.Store.(*memory.Store), cachememory.Options{Worker: cache.NewWorker()})
		sources := []aggregate.Source{
			{Name: "store", Cache: stored},
			{Name: "files", Cache: source, Place: func(key config.Key) string { return key.Name + ".yaml" }},
		}
		if first {
			slices.Reverse(sources)
		}
		all, err := aggregate.MakeCache(aggregate.Options{Worker: cache.NewWorker(), Store: stored, FirstSync: time.Hour, Sources: sources})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = all.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
		wait, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		if _, err := all.Await(wait, 1); err != nil {
			t.Fatal(err)
		}
		o.Cache, o.Permit, o.Place = all, all.Permit, all.Place
	})
	return s, source
}

// Until waits until the served snapshot satisfies a condition.
func (s *Server) Until(t testing.TB, is func(*cache.Snapshot) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	all := s.Options.Cache.(*aggregate.Cache)
	for now := all.Snapshot(); !is(now); {
		var err error
		if now, err = all.Next(ctx, now); err != nil {
			t.Fatal(err)
		}
	}
}
