package protocol

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// subscribe adds the new names of a later request. Each gets an answer, even if the
// client has the resource.
func (s *Subscription) subscribe(names nameset.Set) {
	if names.Has(wildcardName) {
		names = s.typ.Names.Without(names, wildcardName)
		if !s.wildcard {
			s.updateAcked(s.onlyNamed)
			s.wildcard, s.mustRespond = true, true
		}
	}
	if names.Len() == 0 {
		return
	}
	if !s.wildcard {
		s.forgetNew(names)
	}
	s.names = s.typ.Names.Plus(s.names, names)
	s.mustAnswer = s.typ.Names.Plus(s.mustAnswer, names)
	s.widened++
}

// onlyNamed returns the part of a set that the client requests by name, with unknown
// versions, so that all of it is sent again with the wildcard.
func (s *Subscription) onlyNamed(has resource.Set) resource.Set {
	return resource.FromSorted(s.requestedByName(has, func(r *resource.Resource) *resource.Resource {
		if !isCertain(r) {
			return r
		}
		return unknownForm(r)
	}))
}

// requestedByName iterates over the part of a set that the client requests by name, each resource
// in the form that as returns.
func (s *Subscription) requestedByName(has resource.Set, as func(*resource.Resource) *resource.Resource) iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		for name := range s.names.All() {
			if r, ok := has.Get(name); ok && !yield(name, as(r)) {
				return
			}
		}
	}
}

// forgetNew drops the acked entries of names that the client has not requested before.
// They mean nothing, since acked may be the desired Set.
func (s *Subscription) forgetNew(names nameset.Set) {
	many := names.Len() > s.acked.Len()/8
	s.updateAcked(func(has resource.Set) resource.Set {
		if many {
			return resource.FromSorted(s.requestedByName(has, func(r *resource.Resource) *resource.Resource { return r }))
		}
		for name := range names.All() {
			if !s.subscribesByName(name) {
				has = has.Delete(name)
			}
		}
		return has
	})
}

// A delta client cannot tell whether it has a resource for its name or for a wildcard
// that goes on, so it is sent the resource again.
func (s *Subscription) unsubscribe(names nameset.Set) {
	if names.Len() == 0 {
		return
	}
	var again []string
	for name := range names.All() {
		if name == wildcardName {
			s.wildcard = false
		} else if s.subscribesByName(name) && s.wildcard && s.variant == Delta {
			again = append(again, name)
		}
	}
	s.names = s.typ.Names.Minus(s.names, names)
	if s.inflight != nil && !s.wildcard {
		for name := range names.All() {
			s.inflight.dropped = s.inflight.dropped || s.delivering(name)
		}
	}
	s.mustAnswer = s.typ.Names.With(s.mustAnswer, again...)
	if !s.wildcard {
		s.forgetUnwanted()
	}
}

// Delivering says whether the response in flight has something of a name.
func (s *Subscription) Delivering(name string) bool { return s.inflight != nil && s.delivering(name) }

// delivering says whether the response in flight has something of a name. For the
// wildcard it always has.
func (s *Subscription) delivering(name string) bool {
	if name == wildcardName {
		return true
	}
	return s.acked.Value(name) != s.inflight.acked.Value(name) || slices.Contains(s.inflight.unknown, name)
}

// forgetUnwanted drops due answers and rejections of names that are not requested any
// more.
func (s *Subscription) forgetUnwanted() {
	s.mustAnswer = s.typ.Names.Without(s.mustAnswer, slices.Collect(s.mustAnswer.Missing(s.names))...)
	for name := range s.rejected.Keys() {
		if !s.subscribesByName(name) {
			s.clearRejected(name)
		}
	}
	s.endSearch()
}

// setNames takes the names of a later request in state of the world, which lists all
// names. New names are answered, and missing ones are dropped. An empty list is a
// wildcard as long as no request had names.
func (s *Subscription) setNames(names nameset.Set) {
	if s.explicit = s.explicit || names.Len() > 0; !s.explicit {
		return
	}
	names = s.withoutEmptyName(names)
	had := s.names
	if s.wildcard {
		had = s.typ.Names.With(had, wildcardName)
	}
	s.subscribe(s.typ.Names.Minus(names, had))
	s.unsubscribe(s.typ.Names.Minus(had, names))
}
