package protocol

import (
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Holding compares, for one name, what a client should have with what it has.
type Holding struct {
	Name string
	// Desired is what the client should have, and Acked what it has as far as is known;
	// each is nil for nothing. The empty resource that answers an unknown name counts as
	// nothing: whether the client still uses a resource that is gone is not known.
	Desired, Acked *resource.Resource
	// Unknown says that the client may have another form than Acked.
	Unknown bool
	// InFlight says that a response with an answer for the name is in flight.
	InFlight bool
	// Rejected is the client's rejection of Desired; nil for none.
	Rejected *Rejection
}

// InSync says whether the client has what it should have.
func (h Holding) InSync() bool {
	switch {
	case h.Unknown:
		return false
	case h.Desired == nil || h.Acked == nil:
		return h.Desired == h.Acked
	}
	return h.Desired.Version == h.Acked.Version
}

// Holdings returns, in order, what the client requests and should have, given all that
// it should have of the type, and what it has. A client that has not requested the type
// has nothing. The cost follows the number of resources.
func (s *Subscription) Holdings(desired resource.Set) []Holding {
	if !s.started {
		return nil
	}
	var out []Holding
	for _, name := range s.heldNames(desired) {
		if h := s.holding(name, desired); h.Desired != nil || h.Acked != nil || h.Unknown || h.Rejected != nil {
			out = append(out, h)
		}
	}
	return out
}

// heldNames returns, in order, the requested names that the client may hold something of.
// It omits names that the client stated in a scope that was never open.
func (s *Subscription) heldNames(desired resource.Set) []string {
	names := map[string]struct{}{}
	add := func(name string) {
		if s.subscribes(name) && s.scope(name) > ignored {
			names[name] = struct{}{}
		}
	}
	for name := range desired.Keys() {
		add(name)
	}
	for name := range s.acked.Keys() {
		add(name)
	}
	return slices.Sorted(maps.Keys(names))
}

func (s *Subscription) holding(name string, desired resource.Set) Holding {
	h := Holding{Name: name, InFlight: s.Delivering(name)}
	if s.canUse(name) {
		h.Desired = desired.Value(name)
	}
	has := s.acked.Value(name)
	h.Unknown = s.mayBeAnyForm(has) || has != nil && !isCertain(has)
	if last := lastForm(has); last != nil {
		h.Acked = withKnownVersion(last)
	}
	if s.Rejects(name) {
		h.Rejected = s.rejected.Value(name).Rejection
	}
	return h
}
