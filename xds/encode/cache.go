package encode

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"google.golang.org/grpc/mem"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Options are how a Cache is made.
type Options struct {
	// ControlPlane names the server in its responses.
	ControlPlane string
	// MaxBytes bounds the bytes that are kept for later clients; 0 stands for 128 MiB.
	// Bytes that are being sent do not count.
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

	mu    sync.Mutex                // guards what follows
	runs  *simplelru.LRU[key, *run] // drops a run by dropped
	bytes int
	built int // runs encoded so far
}

// key is the hash of the versions of a list of resources in a variant.
type key struct {
	delta bool
	hash  uint64
}

// New returns an empty cache, which Run sweeps.
func New(o Options) *Cache {
	o.MaxBytes = cmp.Or(o.MaxBytes, 128<<20)
	o.MaxAge = cmp.Or(o.MaxAge, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Cache{options: o, seed: maphash.MakeSeed(), filled: make(chan struct{}, 1)}
	c.runs, _ = simplelru.NewLRU(math.MaxInt, c.dropped) // fails for a size below 1 only
	return c
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
	for {
		_, last, ok := c.runs.GetOldest()
		if !ok || !last.used.Before(oldest) {
			return c.bytes
		}
		c.runs.RemoveOldest()
	}
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
	k := key{delta: delta, hash: c.hash(resources)}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Now()
	if r, ok := c.runs.Get(k); ok {
		if slices.EqualFunc(r.resources, resources, same) {
			r.used = now
			return r
		}
		c.runs.Remove(k)
	}
	r := &run{resources: slices.Clone(resources), size: sizeOf(resources), used: now}
	c.built++
	c.keep(k, r)
	return r
}

// keep takes a run in, and drops the oldest for it.
func (c *Cache) keep(k key, r *run) {
	if c.bytes == 0 {
		select {
		case c.filled <- struct{}{}:
		default:
		}
	}
	c.runs.Add(k, r)
	c.bytes += r.size
	for c.bytes > c.options.MaxBytes {
		c.runs.RemoveOldest()
	}
}

// dropped follows the removal of a run.
func (c *Cache) dropped(_ key, r *run) { c.bytes -= r.size }

func (c *Cache) hash(resources []*resource.Resource) uint64 {
	var sum uint64
	for _, r := range resources {
		sum = sum*31 + maphash.String(c.seed, r.Version)
	}
	return sum
}

// same says whether two resources are the same on the wire: a version covers the
// content.
func same(a, b *resource.Resource) bool {
	return a == b || a.Name == b.Name && a.Version == b.Version && a.Body.GetTypeUrl() == b.Body.GetTypeUrl()
}
