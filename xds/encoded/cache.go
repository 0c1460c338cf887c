package encoded

import (
	"container/list"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Options are how a Cache is made.
type Options struct {
	// ControlPlane names the server in its responses.
	ControlPlane string
	// MaxBytes bounds what is kept for clients yet to come; 0 stands for 128 MiB.
	// What is being sent is there as long as it is.
	MaxBytes int
	// MaxAge is how long it is kept since it was last used; 0 stands for ten
	// seconds.
	MaxAge time.Duration
	// Now is the clock; nil for the time of day.
	Now func() time.Time
}

// Cache keeps encoded runs of resources. It may be used by several goroutines.
type Cache struct {
	options Options
	seed    maphash.Seed
	filled  chan struct{} // holds a token after the cache was empty

	mu        sync.Mutex // guards what follows
	recent    *list.List // of *entry, the one used last in front
	byPointer map[key]*list.Element
	byContent map[key]*run
	bytes     int
	built     int // runs encoded so far
}

// key is the hash of a list of resources in a variant.
type key struct {
	delta bool
	hash  uint64
}

// entry is a run as it is found by the identity of its resources. Several share
// a run whose resources are of equal content.
type entry struct {
	key       key
	resources []*resource.Resource
	run       *run
	used      time.Time
}

// New returns an empty cache, which Run sweeps.
func New(o Options) *Cache {
	if o.MaxBytes == 0 {
		o.MaxBytes = 128 << 20
	}
	if o.MaxAge == 0 {
		o.MaxAge = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Cache{
		options: o, seed: maphash.MakeSeed(), filled: make(chan struct{}, 1),
		recent: list.New(), byPointer: map[key]*list.Element{}, byContent: map[key]*run{},
	}
}

// Run drops what was not used for the maximum age, until ctx ends. An empty cache
// costs nothing.
func (c *Cache) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.filled:
		}
		for c.Sweep() > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(c.options.MaxAge / 2):
			}
		}
	}
}

// Sweep drops what was not used for the maximum age, and returns how many bytes
// are left.
func (c *Cache) Sweep() int {
	oldest := c.options.Now().Add(-c.options.MaxAge)
	c.mu.Lock()
	defer c.mu.Unlock()
	for last := c.recent.Back(); last != nil && last.Value.(*entry).used.Before(oldest); last = c.recent.Back() {
		c.drop(last)
	}
	return c.bytes
}

// Stats are what a cache keeps, and how much work it did.
type Stats struct {
	Bytes int // kept
	Built int // runs encoded so far
}

// Stats tells what the cache keeps.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Bytes: c.bytes, Built: c.built}
}

// encode returns the bytes of a list of resources as repeated fields of a
// response, with room for one more buffer.
func (c *Cache) encode(resources []*resource.Resource, delta bool) mem.BufferSlice {
	var out mem.BufferSlice
	for part := range cut(resources) {
		r := c.find(part, delta)
		r.once.Do(func() { r.build(delta) })
		out = append(slices.Grow(out, len(r.buffers)+1), r.buffers...)
	}
	return out
}

// find returns the run of some resources, which may yet have to be built.
func (c *Cache) find(resources []*resource.Resource, delta bool) *run {
	k := key{delta: delta, hash: c.pointers(resources)}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Now()
	if element, ok := c.byPointer[k]; ok {
		if e := element.Value.(*entry); slices.Equal(e.resources, resources) {
			e.used = now
			c.recent.MoveToFront(element)
			return e.run
		}
		c.drop(element)
	}
	e := &entry{key: k, resources: slices.Clone(resources), used: now}
	content := key{delta: delta, hash: c.content(resources)}
	if known, ok := c.byContent[content]; ok && slices.EqualFunc(known.resources, resources, same) {
		e.run = known
	} else {
		e.run = &run{key: content, resources: e.resources, size: sizeOf(resources)}
		c.byContent[content] = e.run
		c.built++
	}
	c.keep(e)
	return e.run
}

// keep takes an entry in, and drops the oldest for it.
func (c *Cache) keep(e *entry) {
	if c.bytes == 0 {
		select {
		case c.filled <- struct{}{}:
		default:
		}
	}
	c.byPointer[e.key] = c.recent.PushFront(e)
	if e.run.entries++; e.run.entries == 1 {
		c.bytes += e.run.size
	}
	for c.bytes > c.options.MaxBytes {
		c.drop(c.recent.Back())
	}
}

func (c *Cache) drop(element *list.Element) {
	e := c.recent.Remove(element).(*entry)
	delete(c.byPointer, e.key)
	if e.run.entries--; e.run.entries > 0 {
		return
	}
	c.bytes -= e.run.size
	if c.byContent[e.run.key] == e.run {
		delete(c.byContent, e.run.key)
	}
}

func (c *Cache) pointers(resources []*resource.Resource) uint64 {
	var sum uint64
	for _, r := range resources {
		sum = sum*31 + maphash.Comparable(c.seed, r)
	}
	return sum
}

func (c *Cache) content(resources []*resource.Resource) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for _, r := range resources {
		_, _ = h.WriteString(r.Name)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(r.Version)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// same says whether two resources are the same on the wire: a version covers the
// content.
func same(a, b *resource.Resource) bool {
	return a == b || a.Name == b.Name && a.Version == b.Version && a.Body.GetTypeUrl() == b.Body.GetTypeUrl()
}
