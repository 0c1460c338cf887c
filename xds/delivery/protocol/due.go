package protocol

import (
	"iter"
	"strings"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/resource"
)

type change = resource.Change

// Versions of resources that the client may have in an unknown form. They are in the
// acked set under a version that no resource has, and so differ from every desired
// resource.
const (
	unknownVersion = "?" // followed by the last known version, if any
	// maybeReplaced is followed by the last version, where the client may have another
	// form now.
	maybeReplaced = "?!"
	// rejectedVersion is the version of a resource that the client did not have and
	// rejected. It may have taken it even so.
	rejectedVersion = "? refused"
)

func isCertain(r *resource.Resource) bool { return !strings.HasPrefix(r.Version, unknownVersion) }

func differs(c change) bool { return c.HasOld != c.HasNew || c.Old.Version != c.New.Version }

// differences iterates, in order, over the requested names that differ between two sets.
func (s *Subscription) differences(from, to resource.Set) iter.Seq[change] {
	return func(yield func(change) bool) {
		if from.Len() == 0 && !s.wildcard {
			for name, r := range nameset.In(s.names, to) {
				if r != nil && !yield(change{Key: name, New: r, HasNew: true}) {
					return
				}
			}
			return
		}
		for c := range s.typ.Shared.each(from, to) {
			if differs(c) && s.subscribes(c.Key) && !yield(c) {
				return
			}
		}
	}
}

// Flight says what the response in flight changes for the client: nothing if there is
// none.
type Flight struct {
	sub *Subscription
	// From is the acked set, and To the acked set once the client acknowledges the
	// response.
	From, To resource.Set
}

// Flight returns what the response in flight changes for the client.
func (s *Subscription) Flight() Flight { return Flight{s, s.acked, s.ackedAfterFlight()} }

// Changed iterates, in order, over the resources in flight that the client lacks. isNew
// says that the client has no known version of it.
func (f Flight) Changed(yield func(r *resource.Resource, isNew bool) bool) {
	for c := range f.sub.differences(f.From, f.To) {
		if c.HasNew && !yield(c.New, f.sub.isNew(c.Old)) {
			return
		}
	}
}

// due iterates, in order, over the changes to send once the response in flight is
// acknowledged. It leaves out what the client rejected.
func (s *Subscription) due() iter.Seq[change] {
	return func(yield func(change) bool) {
		if !s.started {
			return // the client has requested nothing yet
		}
		for c := range s.differences(s.ackedAfterFlight(), s.desired) {
			if c, ok := s.sendable(c); ok && !yield(c) {
				return
			}
		}
	}
}

// dueKinds says which kinds of changes are due: resources to send, and names to give up.
// Callers ask for them often between two changes, so a subscription keeps them while
// their basis is the same.
type dueKinds struct {
	basis          basis
	added, removed bool
}

// basis holds everything that the due changes depend on.
type basis struct {
	started, wildcard    bool
	afterFlight, desired resource.Set
	rejected             pmap.Map[*RejectedForm]
	names, mustAnswer    nameset.Set
	scopeChanges         int
}

func (s *Subscription) dueKinds() dueKinds {
	now := basis{s.started, s.wildcard, s.ackedAfterFlight(), s.desired, s.rejected, s.names, s.mustAnswer, s.scopeChanges}
	switch {
	case now.afterFlight == now.desired:
		s.lastKinds = dueKinds{} // an old basis would keep former sets in memory
	case s.lastKinds.basis != now:
		s.lastKinds = dueKinds{basis: now}
		s.findKinds()
	}
	return s.lastKinds
}

// findKinds goes through the due changes until it has found both kinds. A client that has
// nothing has nothing to give up.
func (s *Subscription) findKinds() {
	kinds, bare := &s.lastKinds, s.ackedAfterFlight().Len() == 0
	for c := range s.due() {
		kinds.added, kinds.removed = kinds.added || c.HasNew, kinds.removed || !c.HasNew
		if kinds.added && (kinds.removed || bare) {
			break
		}
	}
}

// sendable returns the change to send for a difference; false for none. In a scope that
// was never open there is none, and in a closed scope the resource must be removed. A
// version that the client rejected alone is not sent again. If the client may have lost
// the version that it had in its place, it gets that one.
func (s *Subscription) sendable(c change) (change, bool) {
	switch s.scope(c.Key) {
	case unseen, ignored:
		return c, false
	case shut:
		if c.New, c.HasNew = nil, false; !c.HasOld {
			return c, false
		}
	}
	if s.mustAnswer.Has(c.Key) || !s.suppressed(c) {
		return c, true
	}
	if last := lastForm(c.Old); c.HasNew && last != nil && !isCertain(last) && !s.sendsWholeState() {
		c.New = withKnownVersion(last)
		return c, true
	}
	return c, false
}

// suppressed says whether the client rejected exactly this change.
func (s *Subscription) suppressed(c change) bool {
	r, ok := s.rejected.Get(c.Key)
	switch {
	case !ok:
		return false
	case c.HasNew:
		return r.form != nil && r.form.Version == c.New.Version
	}
	return r.form == nil
}

// dueChange returns the change of one name to send; false for none.
func (s *Subscription) dueChange(name string) (change, bool) {
	c := change{Key: name}
	if !s.started || !s.subscribes(name) {
		return c, false
	}
	c.Old, c.HasOld = s.ackedAfterFlight().Get(name)
	c.New, c.HasNew = s.desired.Get(name)
	if !c.HasOld && !c.HasNew || !differs(c) {
		return c, false
	}
	return s.sendable(c)
}

// isNew says whether the client is not known to have a resource, given its entry in the
// acked set. In state of the world a client does not state what it has.
func (s *Subscription) isNew(has *resource.Resource) bool {
	return has == nil || has.Version == rejectedVersion || s.variant == StateOfTheWorld && has.Version == unknownVersion
}

// mayBeAnyForm says whether the client may have a name in an unknown form.
func (s *Subscription) mayBeAnyForm(has *resource.Resource) bool {
	return has == nil && s.unknownState || has != nil && has.Version == unknownVersion
}

// DueNames iterates over the names to send: in order, those that the client lacks or
// has in an older version, and then those that it requested again. It leaves out names
// that are in flight or rejected.
func (s *Subscription) DueNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range s.due() {
			if c.HasNew && !s.mustAnswer.Has(c.Key) && !yield(c.Key) {
				return
			}
		}
		for name := range s.mustAnswer.All() {
			if !yield(name) {
				return
			}
		}
	}
}

// Changing iterates, in order, over the resources to send of which the client is known to have
// another form: that form, and the one that it should have.
func (s *Subscription) Changing() iter.Seq2[*resource.Resource, *resource.Resource] {
	return func(yield func(has, wants *resource.Resource) bool) {
		for c := range s.due() {
			if has := lastForm(c.Old); c.HasNew && has != nil && !yield(has, c.New) {
				return
			}
		}
	}
}

// Pending says whether something is in flight, or due.
func (s *Subscription) Pending() bool {
	if s.inflight != nil || s.mustRespond || s.mustAnswer.Len() > 0 {
		return true
	}
	kinds := s.dueKinds()
	return kinds.added || kinds.removed
}

// HasAdditions says whether an addition or a change is due.
func (s *Subscription) HasAdditions() bool {
	return s.mustRespond || s.mustAnswer.Len() > 0 || s.dueKinds().added
}

// InFlight says whether a response was sent and not answered.
func (s *Subscription) InFlight() bool { return s.inflight != nil }
