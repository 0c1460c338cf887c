package stream

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// subscribe adds names in a later delta request: each is answered, also one
// that the client has.
func (s *Session) subscribe(names nameset.Set) {
	if names.Has(wildcardName) {
		names = s.typ.Names.Without(names, wildcardName)
		if !s.wildcard {
			s.eachHas(s.onlyNamed)
			s.wildcard, s.owes = true, true
		}
	}
	if names.Len() == 0 {
		return
	}
	if !s.wildcard {
		s.forgetNew(names)
	}
	s.names = s.typ.Names.Plus(s.names, names)
	s.asked = s.typ.Names.Plus(s.asked, names)
	s.grown++
}

// onlyNamed is what a client has of the names that it asks for, all of which it
// is to be sent again.
func (s *Session) onlyNamed(has resource.Set) resource.Set {
	return resource.FromSorted(s.nameds(has, func(r *resource.Resource) *resource.Resource {
		if !certain(r) {
			return r
		}
		return doubtful(r)
	}))
}

// nameds iterates over what a client has of the names that it asks for.
func (s *Session) nameds(has resource.Set, as func(*resource.Resource) *resource.Resource) iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		for name := range s.names.All() {
			if r, ok := has.Get(name); ok && !yield(name, as(r)) {
				return
			}
		}
	}
}

// forgetNew drops what the client would seem to have of names that it did not ask
// for until now.
func (s *Session) forgetNew(names nameset.Set) {
	many := names.Len() > s.has.Len()/8
	s.eachHas(func(has resource.Set) resource.Set {
		if many {
			return resource.FromSorted(s.nameds(has, func(r *resource.Resource) *resource.Resource { return r }))
		}
		for name := range names.All() {
			if !s.named(name) {
				has = has.Delete(name)
			}
		}
		return has
	})
}

// unsubscribe gives names up. In delta a client cannot tell whether it has a
// resource for its name or for a wildcard that goes on, so it is told anew.
func (s *Session) unsubscribe(names nameset.Set) {
	if names.Len() == 0 {
		return
	}
	var again []string
	for name := range names.All() {
		if name == wildcardName {
			s.wildcard = false
		} else if s.named(name) && s.wildcard && s.variant == Delta {
			again = append(again, name)
		}
	}
	s.names = s.typ.Names.Minus(s.names, names)
	if s.inflight != nil && !s.wildcard {
		for name := range names.All() {
			s.inflight.dropped = s.inflight.dropped || s.delivering(name)
		}
	}
	s.asked = s.typ.Names.With(s.asked, again...)
	if !s.wildcard {
		s.forgetUnwanted()
	}
}

// delivering says whether the response under way has something of a name, or of
// any, which stands for a name that is not known.
func (s *Session) delivering(name string) bool {
	if name == wildcardName {
		return true
	}
	return s.has.Value(name) != s.inflight.has.Value(name) || slices.Contains(s.inflight.unknown, name)
}

// forgetUnwanted drops what is due of names that are not asked for any more.
func (s *Session) forgetUnwanted() {
	s.asked = s.typ.Names.Without(s.asked, slices.Collect(s.asked.Missing(s.names))...)
	repaired := false
	for name := range s.refused.Keys() {
		if !s.named(name) {
			s.refused = s.refused.Delete(name)
			repaired = true
		}
	}
	if repaired {
		s.retry()
	}
	s.lapse()
}

// rename takes the names of a later request in state of the world, which are
// all names there are: new ones are answered, the missing forgotten. To name
// none means what it meant before as long as none was ever named.
func (s *Session) rename(names nameset.Set) {
	if s.explicit = s.explicit || names.Len() > 0; !s.explicit {
		return
	}
	had := s.names
	if s.wildcard {
		had = s.typ.Names.With(had, wildcardName)
	}
	s.subscribe(s.typ.Names.Minus(names, had))
	s.unsubscribe(s.typ.Names.Minus(had, names))
}
