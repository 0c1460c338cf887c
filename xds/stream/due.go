package stream

import (
	"iter"
	"strings"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

type change = resource.Change

// A resource that a client may have in another form than is known is among what
// it has under a version that no resource has, and so differs from all that is
// offered.
const (
	unsure = "?" // before the version that it had last, if any is known
	// refusedVersion is that of one which it did not have, refused, and may have
	// taken even so.
	refusedVersion = "? refused"
)

// nothing stands, among what was refused, for a removal or for the answer that
// there is no such resource.
var nothing = &resource.Resource{}

func certain(r *resource.Resource) bool { return !strings.HasPrefix(r.Version, unsure) }

func differs(c change) bool { return c.HasOld != c.HasNew || c.Old.Version != c.New.Version }

// differences iterates, in order, over what the client asks for and has not, or
// not in this form, when it has a set.
func (s *Session) differences(has resource.Set) iter.Seq[change] {
	return func(yield func(change) bool) {
		if has.Len() == 0 && !s.wildcard {
			for name, r := range nameset.In(s.names, s.offered) {
				if r != nil && !yield(change{Key: name, New: r, HasNew: true}) {
					return
				}
			}
			return
		}
		for c := range s.Since(has) {
			if differs(c) && s.asks(c.Key) && !yield(c) {
				return
			}
		}
	}
}

// concerns sees a difference as the client does who has some scopes: what is in
// one that was never open is none, and in one that was, it is to go.
func (s *Session) concerns(c change) (change, bool) {
	switch s.scope(c.Key) {
	case unseen:
		return c, false
	case shut:
		c.New, c.HasNew = nil, false
		return c, c.HasOld
	}
	return c, true
}

// due iterates, in order, over what the client is to be sent, or told to give
// up, when it has taken what is under way. What it refused is not among that.
func (s *Session) due() iter.Seq[change] {
	return func(yield func(change) bool) {
		if !s.started {
			return // it asks for nothing yet
		}
		for c := range s.differences(s.told()) {
			c, ok := s.concerns(c)
			if ok && (s.asked.Has(c.Key) || !s.suppressed(c)) && !yield(c) {
				return
			}
		}
	}
}

// suppressed says whether the client refused just this.
func (s *Session) suppressed(c change) bool {
	r, ok := s.refused.Get(c.Key)
	switch {
	case !ok:
		return false
	case c.HasNew:
		return r.Version == c.New.Version
	}
	return r == nothing
}

// dueOf is the difference in one name, if there is one that is due.
func (s *Session) dueOf(name string) (change, bool) {
	c := change{Key: name}
	if !s.started || !s.asks(name) {
		return c, false
	}
	c.Old, c.HasOld = s.told().Get(name)
	c.New, c.HasNew = s.offered.Get(name)
	if !c.HasOld && !c.HasNew || !differs(c) {
		return c, false
	}
	c, ok := s.concerns(c)
	return c, ok && (s.asked.Has(name) || !s.suppressed(c))
}

// isNew says whether a client is not known to have a resource, as it is said to
// have it. In state of the world it does not say what it has.
func (s *Session) isNew(has *resource.Resource) bool {
	return has == nil || has.Version == refusedVersion || s.variant == StateOfTheWorld && has.Version == unsure
}

// unknown says whether the client may have a name in a form that is not known.
func (s *Session) unknown(has *resource.Resource) bool {
	return has == nil && s.blind || has != nil && has.Version == unsure
}

// Due iterates over the names that the client lacks or has in an older version,
// those apart that are on their way or that it refused: in order, and then those
// that it is answered because it asked.
func (s *Session) Due() iter.Seq[string] {
	return func(yield func(string) bool) {
		for c := range s.due() {
			if c.HasNew && !s.asked.Has(c.Key) && !yield(c.Key) {
				return
			}
		}
		for name := range s.asked.All() {
			if !yield(name) {
				return
			}
		}
	}
}

// Pending says whether something is on its way, or would be if it could.
func (s *Session) Pending() bool {
	return s.inflight != nil || s.owes || s.asked.Len() > 0 || s.sees(due)
}

// Lacks says whether there is something to add or change that was not sent.
func (s *Session) Lacks() bool { return s.owes || s.asked.Len() > 0 || s.sees(added) }

// InFlight says whether a response was sent and not answered.
func (s *Session) InFlight() bool { return s.inflight != nil }
