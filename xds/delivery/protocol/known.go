package protocol

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// InSync says whether the client has the desired resource of a name: it has acknowledged
// or stated that version, and the server does not send it another or the same again.
func (s *Subscription) InSync(name string) bool {
	desired, exists := s.desired.Get(name)
	if !exists || !s.started || !s.canUse(name) || s.mustAnswer.Has(name) {
		return false
	}
	has, later := s.acked.Value(name), s.ackedAfterFlight().Value(name)
	return has != nil && later != nil && has.Version == desired.Version && later.Version == desired.Version
}

// Has says whether the client has, or may have, a resource of a name. It does not have
// what it rejected.
func (s *Subscription) Has(name string) bool { return s.holdsEntry(s.acked.Value(name)) }

// MayHoldRejected is like Has, but includes resources that the client rejected along with
// others: it may have taken them.
func (s *Subscription) MayHoldRejected(name string) bool {
	return s.Has(name) || s.search != nil && len(s.search.maybe[name]) > 0
}

// Forms iterates over the forms of a name that the client has or, of responses that it
// rejected, may have.
func (s *Subscription) Forms(name string) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		if has := s.Acked(name); has != nil && !yield(has) || s.search == nil {
			return
		}
		for _, r := range s.search.maybe[name] {
			if !yield(r) {
				return
			}
		}
	}
}

// Acked returns the resource that the client has of a name, as far as is known; nil for
// none.
func (s *Subscription) Acked(name string) *resource.Resource { return lastForm(s.acked.Value(name)) }

// Answered says whether the client requests a name and has acknowledged or rejected an
// answer: the resource, or that it does not exist.
func (s *Subscription) Answered(name string) bool {
	if !s.started || !s.canUse(name) || s.mustAnswer.Has(name) || s.inflight != nil && slices.Contains(s.inflight.unknown, name) {
		return false
	}
	_, exists := s.desired.Get(name)
	return !exists || s.Has(name) || s.Rejects(name)
}

// HasFinalAnswer says whether the client was answered a name, and nothing of the name is being
// sent again.
func (s *Subscription) HasFinalAnswer(name string) bool {
	if !s.Answered(name) {
		return false
	}
	has, ok := s.acked.Get(name)
	return !ok || isCertain(has) || s.Rejects(name)
}

// AckedOrEmpty returns what the client has of a name, or the empty resource that
// answered it; nil for neither.
func (s *Subscription) AckedOrEmpty(name string) *resource.Resource {
	if r := s.Acked(name); r != nil {
		return r
	}
	return s.empty(name)
}

// Subscribed iterates, in order, over the names that the client requests; all says that
// it requests all resources.
func (s *Subscription) Subscribed() (names iter.Seq[string], all bool) {
	return s.names.All(), s.wildcard
}

// Desired returns the resource that the client should have of a name, nil for none.
func (s *Subscription) Desired(name string) *resource.Resource { return s.desired.Value(name) }

// DesiredSet returns what the client should have, including names that it does not
// request.
func (s *Subscription) DesiredSet() resource.Set { return s.desired }

// ChangesSince iterates, in order, over the differences between a Set and DesiredSet.
func (s *Subscription) ChangesSince(before resource.Set) iter.Seq[resource.Change] {
	return s.typ.Shared.each(before, s.desired)
}

// Wants says whether the client requests a name and can use it.
func (s *Subscription) Wants(name string) bool { return s.started && s.canUse(name) }

// Started says whether the client has requested the type.
func (s *Subscription) Started() bool { return s.started }

// FirstSync says whether the client has nothing yet, and the first of what it requests
// is in flight or due. All that it requests exists then, and nothing was rejected.
func (s *Subscription) FirstSync() bool {
	if !s.started || s.unknownState || s.acked.Len() > 0 || s.mustAnswer.Len() > 0 || s.rejected.Len() > 0 {
		return false
	}
	return s.inflight != nil || s.HasAdditions()
}

// Size bounds how many resources the client may get.
func (s *Subscription) Size() int {
	if s.wildcard {
		return s.desired.Len()
	}
	return min(s.desired.Len(), s.names.Len())
}

// Due says whether a resource is due, and whether it is new to the client: the client
// has no version of it, or will have none after the response in flight.
func (s *Subscription) Due(name string) (due, isNew bool) {
	c, differs := s.dueChange(name)
	if !s.mustAnswer.Has(name) && (!differs || !c.HasNew) {
		return false, false
	}
	_, stays := s.ackedAfterFlight().Get(name)
	return true, !stays || s.isNew(s.acked.Value(name))
}

// Removing says whether the removal of a name is due.
func (s *Subscription) Removing(name string) bool {
	c, due := s.dueChange(name)
	return due && !c.HasNew && !s.mustAnswer.Has(name)
}

// RemovingUnknown says whether the removal of a name is due whose form is unknown, as the
// client stated it from an earlier stream.
func (s *Subscription) RemovingUnknown(name string) bool {
	return s.Removing(name) && s.mayBeAnyForm(s.ackedAfterFlight().Value(name))
}

// Rejects says whether the client rejected a resource alone in a response, and the
// resource was not sent again since.
func (s *Subscription) Rejects(name string) bool {
	_, ok := s.rejected.Get(name)
	return ok && s.subscribes(name)
}

// Removals returns, in order, the names whose removal is due.
func (s *Subscription) Removals() []string {
	if !s.dueKinds().removed {
		return nil
	}
	var out []string
	for c := range s.due() {
		if !c.HasNew && !s.mustAnswer.Has(c.Key) {
			out = append(out, c.Key)
		}
	}
	return out
}

// KeptOnRejection iterates over the resources that the client keeps because it rejected
// others in their place. A nil resource is an unknown form.
func (s *Subscription) KeptOnRejection() iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for name := range s.rejected.Keys() {
			has := s.acked.Value(name)
			if s.subscribes(name) && s.holdsEntry(has) && !yield(lastForm(has)) {
				return
			}
		}
	}
}

// NotInSync iterates, in no order, over the resources that the client has, or is about
// to have, and that differ from the desired ones. Those are to be replaced or removed,
// in flight, kept because of a rejection, or possibly taken from a rejected response. A
// nil resource is an unknown form. The client has the desired version of all others.
func (s *Subscription) NotInSync() iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		if !s.started {
			return
		}
		for c := range s.differences(s.acked, s.desired) {
			if s.holdsEntry(c.Old) && !yield(lastForm(c.Old)) {
				return
			}
		}
		if s.search != nil {
			for _, forms := range s.search.maybe {
				for _, r := range forms {
					if !yield(r) {
						return
					}
				}
			}
		}
		if s.inflight == nil {
			return
		}
		for c := range s.differences(s.acked, s.inflight.acked) {
			if s.holdsEntry(c.Old) && !yield(lastForm(c.Old)) || c.HasNew && !yield(lastForm(c.New)) {
				return
			}
		}
	}
}

// holdsEntry says whether the client has a resource, or may have it, given its acked
// entry.
func (s *Subscription) holdsEntry(has *resource.Resource) bool {
	return has != nil && has.Version != rejectedVersion || s.mayBeAnyForm(has)
}
