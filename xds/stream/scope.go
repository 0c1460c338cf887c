package stream

import (
	"iter"
	"strings"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// A scoped type is of resources that live within another: the scope of each is
// its name up to the last slash. A client wants of a scope only while it is
// open, that is, while it has what they live in.

// ScopeOf is the scope of a name, empty for none.
func ScopeOf(name string) string { return name[:max(strings.LastIndexByte(name, '/'), 0)] }

// scopeState is how far resources of a scope may be sent.
type scopeState int

const (
	open   scopeState = iota
	shut              // it was open: what the client has of it is to go
	unseen            // what the client has stated of it stays as it is
)

func (s *Session) scope(name string) scopeState {
	if !s.typ.Scoped {
		return open
	}
	switch opened, seen := s.scopes[ScopeOf(name)]; {
	case !seen:
		return unseen
	case !opened:
		return shut
	}
	return open
}

// Opened says whether a scope is open.
func (s *Session) Opened(scope string) bool { return s.scopes[scope] }

// Vacant says whether a scope has nothing that the client should have.
func (s *Session) Vacant(scope string) bool {
	for range namesWithin(s.offered, scope) {
		return false
	}
	return true
}

// Emptied says whether a scope is vacant, and has something that the client is yet to
// be told to give up.
func (s *Session) Emptied(scope string) bool {
	if !s.Vacant(scope) {
		return false
	}
	for name := range namesWithin(s.told(), scope) {
		if s.Leaves(name) {
			return true
		}
	}
	return false
}

// Inhabited says whether the client has anything of a scope when it has taken what is
// under way.
func (s *Session) Inhabited(scope string) bool {
	for range namesWithin(s.told(), scope) {
		return true
	}
	return false
}

// Open has the resources of a scope sent, but those which the client has stated
// to have as they are. Where it is new to the client, whatever it stated is lost
// to it, and all are sent.
func (s *Session) Open(scope string, isNew bool) {
	if s.scopes[scope] && !isNew {
		return
	}
	if s.scopes == nil {
		s.scopes = map[string]bool{}
	}
	s.scopes[scope] = true
	s.scoped++
	s.grown++
	if released := s.release(scope); !isNew && !released {
		return
	}
	if s.inflight != nil { // what is under way may come before, and be lost, or after
		has := withoutScope(s.inflight.has, scope)
		for name := range namesWithin(s.inflight.has, scope) {
			if s.delivering(name) {
				has = has.Set(name, &resource.Resource{Name: name, Version: refusedVersion})
			}
		}
		s.inflight.has = has
	}
	s.has = withoutScope(s.has, scope)
	s.mend(scope)
}

// Close has the client give up all that it has of a scope.
func (s *Session) Close(scope string) {
	if !s.scopes[scope] {
		return
	}
	s.scopes[scope] = false
	s.scoped++
	s.eachHas(func(has resource.Set) resource.Set {
		out := has
		for name := range namesWithin(has, scope) {
			out = s.typ.Shared.doubt(out, name)
		}
		return out
	})
	s.mend(scope)
}

// mend has what was refused along with resources of a scope sent again: these are
// other ones from now on.
func (s *Session) mend(scope string) {
	if left := withoutScope(s.refused, scope); left != s.refused {
		s.refused = left
		s.retry()
	}
	s.lapse()
}

// namesWithin iterates over the names of a scope.
func namesWithin(set resource.Set, scope string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range set.Prefix(scope + "/") {
			if ScopeOf(name) == scope && !yield(name) {
				return
			}
		}
	}
}

func withoutScope(set resource.Set, scope string) resource.Set {
	out := set
	for name := range namesWithin(set, scope) {
		out = out.Delete(name)
	}
	return out
}
