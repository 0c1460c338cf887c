package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// defaultFirstSync is how long a first start waits for sources.
const defaultFirstSync = 5 * time.Second

// Follower is the cache of a source. Any cache that embeds a cache.Feed is one. Its
// handlers and its worker are not used: the worker need not run.
type Follower interface {
	cache.ConfigStoreCache
	Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error)
}

// Store is the cache of the store that takes the writes.
type Store interface {
	Follower
	storage.Batcher
	Since(ctx context.Context, revision int64) (*cache.Snapshot, bool)
	At(revision int64) (*cache.Snapshot, bool)
	Await(ctx context.Context, revision int64) (*cache.Snapshot, error)
}

// Source is one source of configuration. A Cache that has a method Degraded, which
// returns an error, is asked by it how it is. One that has a method Whole is asked by it
// whether it serves all that it has, and leaves nothing out as broken.
type Source struct {
	// Name names the source to users. The objects of every source but the store have it
	// as their Meta.Source.
	Name  string
	Cache Follower
	// Kind and Where tell users what the source is: "directory", "/etc/mesh".
	Kind, Where string
	// Place tells users where in the source an object stands, "" if that is not known;
	// nil for a source that does not know.
	Place func(key config.Key) string
}

// Options configure a Cache. Worker, Store and Sources are required.
type Options struct {
	// Worker is what the handlers run on.
	Worker *cache.Worker
	// Store is the Cache of one of Sources.
	Store Store
	// Sources are in the order of their priority: the first that has a key wins it.
	Sources []Source
	// FirstSync bounds how long a first start waits for sources other than the store;
	// zero means 5 seconds.
	FirstSync time.Duration
	// History and HistoryMemory bound what is kept for followers; see cache.FeedOptions.
	History       int
	HistoryMemory int64
	// Log is told of trouble with sources; nil discards it.
	Log *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Cache is a cache.ConfigStoreCache over several sources.
type Cache struct {
	*cache.Feed
	o       Options
	schemas schema.Set
	store   *member

	mu      sync.Mutex // guards the fields below, those of members, and publishing
	members []*member  // in the order of their priority
	configs pmap.Map[*config.Config]
	shadows pmap.Map[*cache.Shadow]
	waited  bool          // a first start waits for sources no more
	start   func(*member) // follows a member; nil unless Run is under way
}

// member is a source at work.
type member struct {
	Source
	own      bool            // it is the store
	snapshot *cache.Snapshot // as it was merged last
	objects  pmap.Map[*config.Config]
	changed  time.Time // when objects differed last
	failed   error     // why it is not run any more
	since    time.Time // when it was started, or failed
	cancel   context.CancelFunc
	done     chan struct{} // closed when it is not followed any more
}

var (
	_ cache.ConfigStoreCache = (*Cache)(nil)
	_ storage.Batcher        = (*Cache)(nil)
)

// MakeCache returns a cache that waits for Run. It has the kinds of all sources.
func MakeCache(o Options) (*Cache, error) {
	if o.FirstSync <= 0 {
		o.FirstSync = defaultFirstSync
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Cache{o: o}
	var kinds []*schema.Schema
	for _, source := range o.Sources {
		m := &member{Source: source, own: source.Cache == Follower(o.Store)}
		if m.own {
			c.store = m
		}
		if c.named(source.Name) != nil {
			return nil, fmt.Errorf("two sources of configuration have the name %q", source.Name)
		}
		c.members = append(c.members, m)
		for _, kind := range source.Cache.Schemas().All() {
			known := func(k *schema.Schema) bool { return k.Group == kind.Group && k.Kind == kind.Kind }
			if !slices.ContainsFunc(kinds, known) {
				kinds = append(kinds, kind)
			}
		}
	}
	if c.store == nil {
		return nil, errors.New("none of the sources of configuration is the store")
	}
	c.schemas = schema.NewSet(kinds...)
	c.Feed = cache.NewFeed(cache.FeedOptions{
		Worker: o.Worker, Schemas: c.schemas, Store: writes{o.Store, c}, History: o.History, HistoryMemory: o.HistoryMemory,
	})
	return c, nil
}

// named returns the member of a name, nil for none.
func (c *Cache) named(name string) *member {
	for _, m := range c.members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Add adds a source behind all others. Handlers are told of its objects as soon as it
// has some.
func (c *Cache) Add(source Source) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named(source.Name) != nil {
		return fmt.Errorf("add the source of configuration %q: there is one of that name", source.Name)
	}
	m := &member{Source: source}
	c.members = append(c.members, m)
	if c.start != nil {
		c.start(m)
	}
	return nil
}

// Remove ends a source, and waits until it has ended. Its objects go, at once and all in
// one snapshot. The store stays.
func (c *Cache) Remove(name string) error {
	c.mu.Lock()
	m := c.named(name)
	switch {
	case m == nil:
		c.mu.Unlock()
		return fmt.Errorf("remove the source of configuration %q: there is none of that name", name)
	case m.own:
		c.mu.Unlock()
		return fmt.Errorf("remove the source of configuration %q: it is the store", name)
	}
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o == m })
	c.empty(m)
	c.publish(false)
	cancel, done := m.cancel, m.done
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	return nil
}
