package protocol

import (
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Shared caches results for subscriptions that compare the same Sets. The clients of one
// class share their acked Set and their desired Set, so a change is one difference for
// all of them. It drops results soon, since they keep Sets in memory. Subscriptions of
// several types may share one. It is safe for concurrent use.
type Shared struct {
	mu      sync.Mutex // guards the fields below
	diffs   map[twoSets][]change
	unknown map[oneOf]resource.Set
	forgets bool // a timer runs that clears the maps
}

type twoSets struct{ from, to resource.Set }

type oneOf struct {
	set  resource.Set
	name string
}

// NewShared returns an empty Shared.
func NewShared() *Shared {
	return &Shared{diffs: map[twoSets][]change{}, unknown: map[oneOf]resource.Set{}}
}

const (
	// keptFor is how long results are kept, about as long as a change takes to reach all
	// clients. maxShared bounds the results of each kind.
	keptFor   = time.Second
	maxShared = 128
	// maxDiff is the largest difference that counts as few changes.
	maxDiff = 32
)

// each iterates, in order, over the differences of two Sets.
func (s *Shared) each(from, to resource.Set) iter.Seq[change] {
	return func(yield func(change) bool) {
		changes, few := s.changes(from, to)
		if !few {
			resource.Diff(from, to)(yield)
			return
		}
		for _, c := range changes {
			if !yield(c) {
				return
			}
		}
	}
}

// changes returns, in order, the differences of two Sets, if they are few.
func (s *Shared) changes(from, to resource.Set) (changes []change, few bool) {
	if from == to {
		return nil, true
	}
	if from.Len() == 0 || to.Len() == 0 {
		return nil, false
	}
	if s == nil {
		return diff(from, to)
	}
	from, to = resource.Differing(from, to) // the own resources of a client rarely differ
	key := twoSets{from, to}
	s.mu.Lock()
	changes, known := s.diffs[key]
	s.mu.Unlock()
	if known {
		return changes, true
	}
	if changes, few = diff(from, to); !few {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.diffs) == maxShared {
		clear(s.diffs)
	}
	s.diffs[key] = changes
	s.forgetSoon()
	return changes, true
}

// diff returns resource.Diff, if that is few changes.
func diff(from, to resource.Set) (changes []change, few bool) {
	for c := range resource.Diff(from, to) {
		if len(changes) == maxDiff {
			return nil, false
		}
		changes = append(changes, c)
	}
	return changes, true
}

// forgetSoon starts the timer, if it does not run, that clears the cache. The caller
// holds the lock.
func (s *Shared) forgetSoon() {
	if s.forgets {
		return
	}
	s.forgets = true
	time.AfterFunc(keptFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.diffs)
		clear(s.unknown)
		s.forgets = false
	})
}

// markUnknown returns a set in which the version of a resource, if it is there, is
// unknown. Subscriptions that mark the same resource of one set share the result.
func (s *Shared) markUnknown(has resource.Set, name string) resource.Set {
	r, ok := has.Get(name)
	if !ok || !isCertain(r) && !isReplaceable(r) {
		return has
	}
	if s == nil {
		return has.Set(name, unknownForm(r))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := oneOf{has, name}
	doubted, known := s.unknown[key]
	if !known {
		if len(s.unknown) == maxShared {
			clear(s.unknown)
		}
		doubted = has.Set(name, unknownForm(r))
		s.unknown[key] = doubted
		s.forgetSoon()
	}
	return doubted
}

// unknownForm returns r for a client that may have it or not.
func unknownForm(r *resource.Resource) *resource.Resource {
	return withVersionPrefix(r, unknownVersion)
}

// replaceable returns r for a client that may have another form in its place, which it
// rejected along with others.
func replaceable(r *resource.Resource) *resource.Resource { return withVersionPrefix(r, maybeReplaced) }

func isReplaceable(r *resource.Resource) bool { return strings.HasPrefix(r.Version, maybeReplaced) }

// withKnownVersion returns r under its last known version.
func withKnownVersion(r *resource.Resource) *resource.Resource { return withVersionPrefix(r, "") }

func withVersionPrefix(r *resource.Resource, doubt string) *resource.Resource {
	out := *r
	out.Version = doubt + strings.TrimPrefix(strings.TrimPrefix(r.Version, maybeReplaced), unknownVersion)
	return &out
}
