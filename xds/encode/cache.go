package encode

import (
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"google.golang.org/grpc/mem"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// maxAge is how long a run is kept after its last use.
const maxAge = 10 * time.Second

// Cache keeps encoded runs of resources. It is safe for concurrent use.
type Cache struct {
	controlPlane string // an encoded ControlPlane
	seed         maphash.Seed
	maxBytes     int // bound of the runs kept for later clients; bytes being sent do not count

	mu    sync.Mutex                // guards what follows
	runs  *simplelru.LRU[key, *run] // calls dropped for each run that it removes
	bytes int
	built int // runs encoded so far
	// sweeping says that a timer for the next sweep runs.
	sweeping bool
}

// key is the hash of the versions of a list of resources in a variant.
type key struct {
	delta bool
	hash  uint64
}

// New returns an empty cache. Its responses name controlPlane as the server.
func New(controlPlane string) *Cache {
	var w writer
	w.string(controlPlaneIdentifier, controlPlane)
	c := &Cache{controlPlane: string(w.b), seed: maphash.MakeSeed(), maxBytes: 128 << 20}
	c.runs, _ = simplelru.NewLRU(math.MaxInt, c.dropped) // fails for a size below 1 only
	return c
}

// sweep drops the runs that were not used for maxAge, and starts the timer for the next
// sweep if any are left.
func (c *Cache) sweep() {
	oldest := time.Now().Add(-maxAge)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, last, ok := c.runs.GetOldest(); ok && last.used.Before(oldest); _, last, ok = c.runs.GetOldest() {
		c.runs.RemoveOldest()
	}
	if c.sweeping = c.bytes > 0; c.sweeping {
		time.AfterFunc(maxAge/2, c.sweep)
	}
}

// encode returns the bytes of a list of resources as repeated fields of a response. The
// slice has capacity for one more buffer.
func (c *Cache) encode(resources []*resource.Resource, delta bool) mem.BufferSlice {
	var out mem.BufferSlice
	for part := range cut(resources) {
		r := c.find(part, delta)
		r.once.Do(func() { r.build(delta) })
		out = append(slices.Grow(out, len(r.buffers)+1), r.buffers...)
	}
	return out
}

// find returns the run of some resources, which the caller builds if nobody has.
func (c *Cache) find(resources []*resource.Resource, delta bool) *run {
	k := key{delta: delta, hash: c.hash(resources)}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
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

// keep adds a run, and drops the oldest ones if the cache has too many bytes. The first
// run starts the timer of the sweeps.
func (c *Cache) keep(k key, r *run) {
	if !c.sweeping {
		c.sweeping = true
		time.AfterFunc(maxAge/2, c.sweep)
	}
	c.runs.Add(k, r)
	c.bytes += r.size
	for c.bytes > c.maxBytes {
		c.runs.RemoveOldest()
	}
}

func (c *Cache) dropped(_ key, r *run) { c.bytes -= r.size }

func (c *Cache) hash(resources []*resource.Resource) uint64 {
	var sum uint64
	for _, r := range resources {
		sum = sum*31 + maphash.String(c.seed, r.Version)
	}
	return sum
}

// same says whether two resources are the same on the wire: equal versions mean equal
// content.
func same(a, b *resource.Resource) bool {
	return a == b || a.Name == b.Name && a.Version == b.Version && a.Body.GetTypeUrl() == b.Body.GetTypeUrl()
}
