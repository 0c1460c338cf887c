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
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// defaultFirstSync is how long a first start waits for sources.
const defaultFirstSync = 5 * time.Second

// longestRead is how many times that a first start waits for a source that is being read.
const longestRead = 60

// Follower is the cache of a source. Any cache that embeds a cache.Feed is one. The
// aggregate does not use its handlers, so its worker need not run.
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

// Source is one source of configuration. A Cache may have three more methods. Degraded returns
// why its content may be old. Whole says whether it leaves out nothing of the source as broken.
// Reading says whether its first content is on the way.
type Source struct {
	// Name names the source to users. It is the Meta.Source of the objects of every
	// source but the store.
	Name  string
	Cache Follower
	// Kind and Where tell users what the source is: "directory", "/etc/mesh".
	Kind, Where string
	// Place returns where in the source an object stands, for users; "" if unknown. It is
	// nil for a source without places.
	Place func(key config.Key) string
	// Behind says that the objects of the source depend on those of the others, by
	// Options.Merged. Its first snapshot may come after Merged was called.
	Behind bool
}

// Options configure a Cache. Worker, Store and Sources are required.
type Options struct {
	// Worker runs the handlers.
	Worker *cache.Worker
	// Store is the Cache of one of the Sources.
	Store Store
	// Sources are in the order of their priority: the first that has a key wins it.
	Sources []Source
	// FirstSync bounds how long a first start waits for sources other than the store; 0
	// is 5 seconds. For one that is being read it waits sixty times as long.
	FirstSync time.Duration
	// Merged is called with the objects of all sources before each snapshot of them, and first
	// when all sources but those Behind were read. It must neither block nor call the cache; nil
	// is for none.
	Merged func(*cache.Snapshot)
	// History and HistoryMemory bound the history for followers; see cache.FeedOptions.
	History       int
	HistoryMemory int64
	// Log gets messages about trouble with sources; nil discards them.
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
	health  pmap.Map[*health.Report] // of the objects that count
	waited  bool                     // a first start no longer waits for sources
	start   func(*member)            // follows a member; nil unless Run is under way
}

// member is a source of a Cache, with its state.
type member struct {
	Source
	own      bool            // it is the store
	snapshot *cache.Snapshot // as last merged
	objects  pmap.Map[*config.Config]
	changed  time.Time // when its objects last changed
	failed   error     // why it no longer runs
	since    time.Time // when it was started, or failed
	cancel   context.CancelFunc
	done     chan struct{} // closed when the cache no longer follows it
}

var (
	_ cache.ConfigStoreCache = (*Cache)(nil)
	_ storage.Batcher        = (*Cache)(nil)
)

// MakeCache returns a cache that waits for Run. Its kinds are those of all sources, the
// store's first.
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
	for _, source := range o.Sources {
		m := &member{Source: source, own: source.Cache == Follower(o.Store)}
		if m.own {
			c.store = m
		}
		if c.member(source.Name) != nil {
			return nil, fmt.Errorf("two sources of configuration have the name %q", source.Name)
		}
		c.members = append(c.members, m)
	}
	if c.store == nil {
		return nil, errors.New("none of the sources of configuration is the store")
	}
	kinds := slices.Clone(o.Store.Schemas().All())
	for _, m := range c.members {
		for _, kind := range m.Cache.Schemas().All() {
			known := func(k *schema.Schema) bool { return k.Group == kind.Group && k.Kind == kind.Kind }
			if !slices.ContainsFunc(kinds, known) {
				kinds = append(kinds, kind)
			}
		}
	}
	c.schemas = schema.NewSet(kinds...)
	c.Feed = cache.NewFeed(cache.FeedOptions{
		Worker: o.Worker, Schemas: c.schemas, Store: writes{o.Store, c}, History: o.History, HistoryMemory: o.HistoryMemory,
	})
	return c, nil
}

// member returns the member with a name, nil for none.
func (c *Cache) member(name string) *member {
	for _, m := range c.members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Add adds a source behind all others. Handlers get its objects as soon as it has some.
func (c *Cache) Add(source Source) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member(source.Name) != nil {
		return fmt.Errorf("add the source of configuration %q: there is one of that name", source.Name)
	}
	m := &member{Source: source}
	c.members = append(c.members, m)
	if c.start != nil {
		c.start(m)
	}
	return nil
}

// Remove stops a source, and waits until it has stopped. All its objects go in one
// snapshot. The store cannot be removed.
func (c *Cache) Remove(name string) error {
	c.mu.Lock()
	m := c.member(name)
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
