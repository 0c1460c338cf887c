package stream

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Holds tells whether the client has a resource as it is offered: its version, and
// true where it has acknowledged or stated that, or false where that is on its
// way; else "" and false.
func (s *Session) Holds(name string) (version string, acked bool) {
	offered, exists := s.offered.Get(name)
	if !exists || !s.started || !s.wants(name) || s.asked.Has(name) {
		return "", false
	}
	if r, ok := s.told().Get(name); !ok || r.Version != offered.Version {
		return "", false
	}
	r, ok := s.has.Get(name)
	return offered.Version, ok && r.Version == offered.Version
}

// Has says whether the client has, or may have, something of a name. What it
// refused it has not.
func (s *Session) Has(name string) bool { return s.may(s.has.Value(name)) }

// Held is the resource that the client has of a name, as far as is known; nil for
// none.
func (s *Session) Held(name string) *resource.Resource { return known(s.has.Value(name)) }

// Answered says whether the client asks for a name and has taken, or refused, an
// answer: the resource, or that there is none.
func (s *Session) Answered(name string) bool {
	if !s.started || !s.wants(name) || s.asked.Has(name) || s.inflight != nil && slices.Contains(s.inflight.unknown, name) {
		return false
	}
	_, exists := s.offered.Get(name)
	return !exists || s.Has(name) || s.Refuses(name)
}

// ChildrenOf are the children of what the client has of a name, or was answered.
func (s *Session) ChildrenOf(name string) []string {
	r := s.Held(name)
	if r == nil {
		r = s.empty(name)
	}
	if r == nil {
		return nil
	}
	return r.Children
}

// Asked iterates, in order, over the names that the client asks for; all says that
// it asks for all there are.
func (s *Session) Asked() (names iter.Seq[string], all bool) { return s.names.All(), s.wildcard }

// Offered is the resource that the client should have of a name, nil for none.
func (s *Session) Offered(name string) *resource.Resource { return s.offered.Value(name) }

// All is what the client should have, also of names that it does not ask for.
func (s *Session) All() resource.Set { return s.offered }

// Since iterates, in order, over what differs between a Set and All.
func (s *Session) Since(before resource.Set) iter.Seq[resource.Change] {
	return func(yield func(change) bool) {
		changes, few := s.changes(before)
		if !few {
			resource.Diff(before, s.offered)(yield)
			return
		}
		for _, c := range changes {
			if !yield(c) {
				return
			}
		}
	}
}

// latest is what differs between what the client has and what is offered, which is
// asked for again and again until it is sent.
type latest struct {
	from, to resource.Set
	changes  []change
	few      bool
}

// changes are what differs between a Set and what is offered, if these are few.
func (s *Session) changes(before resource.Set) (changes []change, few bool) {
	if before != s.has {
		return s.typ.Shared.changes(before, s.offered)
	}
	if l := &s.latest; l.from != before || l.to != s.offered {
		*l = latest{from: before, to: s.offered}
		l.changes, l.few = s.typ.Shared.changes(before, s.offered)
	}
	return s.latest.changes, s.latest.few
}

// Wants says whether the client asks for a name.
func (s *Session) Wants(name string) bool { return s.started && s.wants(name) }

// Started says whether the client has asked for anything of the type.
func (s *Session) Started() bool { return s.started }

// Opening says whether the client has nothing yet and is being sent, or is to be
// sent, the first of what it asks for: all of that is there, and nothing of it
// was refused.
func (s *Session) Opening() bool {
	if !s.started || s.blind || s.has.Len() > 0 || s.asked.Len() > 0 || s.refused.Len() > 0 {
		return false
	}
	return s.inflight != nil || s.Lacks()
}

// Size is how much the client may be sent of what it asks for.
func (s *Session) Size() int {
	if s.wildcard {
		return s.offered.Len()
	}
	return min(s.offered.Len(), s.names.Len())
}

// Lacking says whether a resource is to be sent and was not yet, and whether it
// is new to the client, which has no version of it, or soon has none.
func (s *Session) Lacking(name string) (due, isNew bool) {
	c, differs := s.dueOf(name)
	if !s.asked.Has(name) && (!differs || !c.HasNew) {
		return false, false
	}
	_, stays := s.told().Get(name)
	return true, !stays || s.isNew(s.has.Value(name))
}

// Leaves says whether the client is yet to be told to give a name up.
func (s *Session) Leaves(name string) bool {
	c, due := s.dueOf(name)
	return due && !c.HasNew && !s.asked.Has(name)
}

// LeavesUnseen says whether the client is yet to be told to give up a name that it
// stated to have, of which nothing else is known.
func (s *Session) LeavesUnseen(name string) bool {
	return s.Leaves(name) && s.unknown(s.told().Value(name))
}

// Refuses says whether the client refused a resource and was not sent it again.
func (s *Session) Refuses(name string) bool {
	_, ok := s.refused.Get(name)
	return ok && s.asks(name)
}

// Leaving are the names, in order, that the client is yet to be told to give up.
func (s *Session) Leaving() []string {
	if !s.sees(removed) {
		return nil
	}
	var out []string
	for c := range s.due() {
		if !c.HasNew && !s.asked.Has(c.Key) {
			out = append(out, c.Key)
		}
	}
	return out
}

// Retained iterates, in order, over the resources that the client goes on with as
// it refused others in their place. A nil resource may be any.
func (s *Session) Retained() iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		for name := range s.refused.Keys() {
			has := s.has.Value(name)
			if s.asks(name) && s.may(has) && !yield(name, known(has)) {
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
		if !s.started {
			return
		}
		for c := range s.differences(s.has) {
			if s.may(c.Old) && !yield(c.Key, known(c.Old)) {
				return
			}
		}
		if s.inflight == nil {
			return
		}
		for c := range resource.Diff(s.has, s.inflight.has) {
			if !differs(c) || !s.asks(c.Key) {
				continue
			}
			if s.may(c.Old) && !yield(c.Key, known(c.Old)) || c.HasNew && !yield(c.Key, known(c.New)) {
				return
			}
		}
	}
}

// may says whether the client has something, as far as is known.
func (s *Session) may(has *resource.Resource) bool {
	return has != nil && has.Version != refusedVersion || s.unknown(has)
}
