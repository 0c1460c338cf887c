package memo

import (
	"maps"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
)

// Uses counts, by object, the resources in use that were made of it, and by patch of an EnvoyFilter
// those that it matched. It is safe for concurrent use; the zero Uses is empty.
type Uses struct {
	mu          sync.Mutex // guards the fields below
	parts       [status.UseParts]usePart
	patches     patchUses
	changeCount int64
}

// usePart has the counts of the objects of one part.
type usePart struct {
	mentions map[uint64]int
	ids      []uint64 // of mentions, in order; nil if they are to be sorted anew
}

// Replace counts in the objects of a resource, and counts out those of another. Either
// may be nil.
func (u *Uses) Replace(before, after *Built) {
	if before == after {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count(after, 1) // first, so that what both were made of stays in use
	u.count(before, -1)
}

// count adds delta to the mentions of the objects of a resource. The caller holds the lock.
func (u *Uses) count(b *Built, delta int) {
	if b == nil {
		return
	}
	for _, p := range b.patches { // also of what a patch removed
		u.mention(p.Filter, delta)
		if u.patches.count(b, p, delta) {
			u.changeCount++
		}
	}
	if b.Resource != nil {
		origins.Each(b.reads, func(key config.Key) { u.mention(key, delta) })
	}
}

// mention adds delta to the mentions of an object. The caller holds the lock.
func (u *Uses) mention(key config.Key, delta int) {
	id := status.ObjectID(key)
	part := &u.parts[status.UsePart(id)]
	if part.mentions == nil {
		part.mentions = map[uint64]int{}
	}
	n := part.mentions[id] + delta
	switch {
	case n == 0:
		delete(part.mentions, id)
	default:
		part.mentions[id] = n
	}
	if n == 0 || n == delta {
		part.ids = nil
		u.changeCount++
	}
}

// Objects returns the ids of the objects in use, by part and in order. Do not modify
// them.
func (u *Uses) Objects() (out [status.UseParts][]uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.parts {
		part := &u.parts[i]
		if part.ids == nil {
			part.ids = slices.Sorted(maps.Keys(part.mentions))
		}
		out[i] = part.ids
	}
	return out
}

// ChangeCount changes whenever an object begins or ceases to be in use, and when a patch begins or
// ceases to match anything, or to fail on a resource.
func (u *Uses) ChangeCount() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changeCount
}
