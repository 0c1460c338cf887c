package stream

import (
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Shared is what sessions work out of Sets, each once for all: the clients of one
// class have the same Set and should have the same one, so one change is the same
// difference for all of them. It is forgotten soon, since it keeps the Sets in memory
// that it is of. Sessions of several types may share one. It is safe for concurrent
// use.
type Shared struct {
	mu      sync.Mutex // guards the fields below
	diffs   map[twoSets][]change
	doubted map[oneOf]resource.Set
	forgets bool // soon
}

type twoSets struct{ from, to resource.Set }

type oneOf struct {
	set  resource.Set
	name string
}

// NewShared returns one that knows nothing.
func NewShared() *Shared {
	return &Shared{diffs: map[twoSets][]change{}, doubted: map[oneOf]resource.Set{}}
}

const (
	// keptFor is how long results are kept, about as long as a change takes to reach
	// all, and maxShared how many of a sort.
	keptFor   = time.Second
	maxShared = 128
	// maxDiff is how large a difference is few.
	maxDiff = 32
)

// changes are, in order, what two Sets differ in, if these are few.
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
	from, to = resource.Differing(from, to) // what is a client's own is mostly the same
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

// diff is resource.Diff, where that is few.
func diff(from, to resource.Set) (changes []change, few bool) {
	for c := range resource.Diff(from, to) {
		if len(changes) == maxDiff {
			return nil, false
		}
		changes = append(changes, c)
	}
	return changes, true
}

// forgetSoon is called with the lock held.
func (s *Shared) forgetSoon() {
	if s.forgets {
		return
	}
	s.forgets = true
	time.AfterFunc(keptFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.diffs)
		clear(s.doubted)
		s.forgets = false
	})
}

// doubt is a set in which a resource, if it is there, is unsure. All who doubt the
// same of one set have one set afterwards, too.
func (s *Shared) doubt(has resource.Set, name string) resource.Set {
	r, ok := has.Get(name)
	if !ok || !certain(r) {
		return has
	}
	if s == nil {
		return has.Set(name, doubtful(r))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := oneOf{has, name}
	doubted, known := s.doubted[key]
	if !known {
		if len(s.doubted) == maxShared {
			clear(s.doubted)
		}
		doubted = has.Set(name, doubtful(r))
		s.doubted[key] = doubted
		s.forgetSoon()
	}
	return doubted
}

// doubtful is a resource of which it is not known whether the client has it.
func doubtful(r *resource.Resource) *resource.Resource {
	doubtful := *r
	doubtful.Version = unsure + r.Version
	return &doubtful
}
