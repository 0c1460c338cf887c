package protocol

import (
	"iter"
	"strings"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// The resources of a scoped type live within others: the scope of a name is the part
// before the last slash. A client can use the resources of a scope only while it is
// open, that is, while the client has the resource of that name.

// ScopeOf returns the scope of a name, empty for none.
func ScopeOf(name string) string { return name[:max(strings.LastIndexByte(name, '/'), 0)] }

// scopeState says which changes of a scope may be sent.
type scopeState int

const (
	unseen  scopeState = iota // never open: what the client has stated stays
	ignored                   // never open, and the client has nothing in it; see ignoreUnopened
	shut                      // it was open: the client must remove what it has there
	open
)

func (s *Subscription) scope(name string) scopeState {
	if !s.typ.Scoped {
		return open
	}
	return s.scopes[ScopeOf(name)]
}

func (s *Subscription) setScope(scope string, to scopeState) {
	if s.scopes == nil {
		s.scopes = map[string]scopeState{}
	}
	if s.scopes[scope] = to; to != ignored { // which makes nothing due
		s.scopeChanges++
	}
}

// ScopeOpen says whether a scope is open.
func (s *Subscription) ScopeOpen(scope string) bool { return s.scopes[scope] == open }

// ScopeIsEmpty says whether the client should have nothing in a scope.
func (s *Subscription) ScopeIsEmpty(scope string) bool { return !hasWithin(s.desired, scope) }

// EmptyScopeDue says whether a scope is empty, and a removal in it is due.
func (s *Subscription) EmptyScopeDue(scope string) bool {
	if !s.ScopeIsEmpty(scope) {
		return false
	}
	for name := range namesWithin(s.ackedAfterFlight(), scope) {
		if s.Removing(name) {
			return true
		}
	}
	return false
}

// ClientHasScope says whether the client has something in a scope once the response in
// flight is acknowledged.
func (s *Subscription) ClientHasScope(scope string) bool {
	return hasWithin(s.ackedAfterFlight(), scope)
}

// OpenScope makes the resources of a scope due, except those that the client has stated
// in the desired version. isNew says that the client has just got the resource of the
// scope anew: it has lost what it stated, so all are due.
func (s *Subscription) OpenScope(scope string, isNew bool) {
	was := s.scopes[scope]
	if was == open && !isNew {
		return
	}
	s.widened++
	s.setScope(scope, open)
	if !isNew && was != ignored {
		return // what the client stated of the scope is in acked
	}
	if s.inflight != nil { // the client may take it before the scope, and lose it, or after it
		has := withoutScope(s.inflight.acked, scope)
		for name := range namesWithin(s.inflight.acked, scope) {
			if s.delivering(name) {
				has = has.Set(name, &resource.Resource{Name: name, Version: rejectedVersion})
			}
		}
		s.inflight.acked = has
	}
	s.acked = withoutScope(s.acked, scope)
	s.forgetRejected(scope)
}

// CloseScope makes due the removal of all that the client has in a scope.
func (s *Subscription) CloseScope(scope string) {
	if s.scopes[scope] != open {
		return
	}
	s.setScope(scope, shut)
	s.updateAcked(func(has resource.Set) resource.Set {
		out := has
		for name := range namesWithin(has, scope) {
			out = s.typ.Shared.markUnknown(out, name)
		}
		return out
	})
	s.forgetRejected(scope)
}

// forgetRejected forgets rejections in a scope, since its resources are new ones from
// now on.
func (s *Subscription) forgetRejected(scope string) {
	for name := range s.rejected.Prefix(scope + "/") {
		if ScopeOf(name) == scope {
			s.clearRejected(name)
		}
	}
	s.endSearch()
}

func namesWithin(set resource.Set, scope string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range set.Prefix(scope + "/") {
			if ScopeOf(name) == scope && !yield(name) {
				return
			}
		}
	}
}

func hasWithin(set resource.Set, scope string) bool {
	for range namesWithin(set, scope) {
		return true
	}
	return false
}

func withoutScope(set resource.Set, scope string) resource.Set {
	out := set
	for name := range namesWithin(set, scope) {
		out = out.Delete(name)
	}
	return out
}

// ignoreUnopened sets acked to the desired set if no difference between them concerns the
// client, so that later looks find none. Differences in scopes that were never open, and
// in which the client has stated nothing, do not: the client counts as in sync with them,
// like with names that it does not request. So scopes that no listener refers to cost
// nothing with each change.
func (s *Subscription) ignoreUnopened() {
	if !s.started || s.inflight != nil || s.acked == s.desired || s.Pending() {
		return
	}
	var unopened []string
	for c := range s.differences(s.acked, s.desired) {
		scope := ScopeOf(c.Key)
		if state := s.scope(c.Key); state > ignored || state == unseen && hasWithin(s.acked, scope) {
			return
		}
		unopened = append(unopened, scope)
	}
	for _, scope := range unopened {
		s.setScope(scope, ignored)
	}
	s.acked = s.desired
}
