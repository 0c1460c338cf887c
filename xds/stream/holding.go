package stream

import (
	"iter"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// holding is what a client has of a name.
type holding struct {
	resource *resource.Resource // nil for none
	// unknown says that the client has, or may have, something of which the content
	// is not known: it had it before this stream.
	unknown bool
}

func (h holding) none() bool { return h.resource == nil && !h.unknown }

// delivery is a name in the response under way: what the client has until it
// takes that, and then.
type delivery struct {
	before holding
	after  *resource.Resource // nil where it is taken away, or unknown
}

// has tells what the client is known to have of a name that it wants.
func (s *Session) has(name string) holding {
	if h, ok := s.due[name]; ok {
		return h
	}
	if h, ok := s.leaving[name]; ok {
		return h
	}
	if d, ok := s.sent[name]; ok {
		return d.before
	}
	if h, ok := s.refused[name]; ok {
		return h
	}
	return holding{resource: s.offered.Value(name)}
}

// Holds tells what the client has of a name: the version that it has
// acknowledged or stated, and true; else the version that is on its way to it,
// or "", and false.
func (s *Session) Holds(name string) (version string, acked bool) {
	known, ok := s.offered.Get(name)
	if !ok || !s.started || !s.wants(name) {
		return "", false
	}
	if _, sent := s.sent[name]; sent {
		return known.Version, false
	}
	_, due := s.due[name]
	_, refused := s.refused[name]
	if due || refused {
		return "", false
	}
	return known.Version, true
}

// Offered is the resource that the client should have of a name, nil for none.
func (s *Session) Offered(name string) *resource.Resource { return s.offered.Value(name) }

// Wants says whether the client asks for a name.
func (s *Session) Wants(name string) bool { return s.started && s.wants(name) }

// Started says whether the client has asked for anything of the type.
func (s *Session) Started() bool { return s.started }

// Lacking says whether a resource is to be sent and was not yet, and whether it
// is new to the client, which has no version of it, or soon has none.
func (s *Session) Lacking(name string) (due, isNew bool) {
	h, due := s.due[name]
	if !due {
		return false, false
	}
	d, sent := s.sent[name]
	return true, s.isNew(h) || sent && d.after == nil
}

// isNew says whether nothing is known that the client has. In state of the world
// it does not say which resources it has.
func (s *Session) isNew(h holding) bool {
	return h.none() || h.unknown && s.variant == StateOfTheWorld
}

// Leaves says whether the client is yet to be told to give a name up.
func (s *Session) Leaves(name string) bool {
	_, ok := s.leaving[name]
	return ok
}

// Leaving iterates, in no order, over the names that the client is yet to be
// told to give up.
func (s *Session) Leaving() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.leaving {
			if !yield(name) {
				return
			}
		}
	}
}

// Retained iterates, in no order, over the resources that the client goes on with
// as it refused others in their place. A nil resource may be any.
func (s *Session) Retained() iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		for name, h := range s.refused {
			if !h.none() && !yield(name, h.resource) {
				return
			}
		}
	}
}

// Unsettled iterates, in no order, over the resources that the client has, or is
// about to have, other than it should: those to be replaced or given up, those
// under way, and those it goes on with as it refused others. A nil resource may
// be any. What is not among them the client has as it is offered.
func (s *Session) Unsettled() iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		held := func(name string, h holding) bool { return h.none() || yield(name, h.resource) }
		for name, h := range s.due {
			if !held(name, h) {
				return
			}
		}
		for name, h := range s.leaving {
			if !held(name, h) {
				return
			}
		}
		for name, h := range s.refused {
			if !held(name, h) {
				return
			}
		}
		for name, d := range s.sent {
			if !held(name, d.before) || d.after != nil && !yield(name, d.after) {
				return
			}
		}
	}
}
