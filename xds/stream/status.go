package stream

import (
	"iter"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// State is how well a client is in step, in the words of the command line.
type State string

// The states of a type on a stream.
const (
	NotSent  State = "NOT SENT"
	Synced   State = "SYNCED"
	Stale    State = "STALE"
	Rejected State = "REJECTED"
)

// Status is what is known of a client.
type Status struct {
	State State
	// Revision of the store that the client is known to be at: it has all that it
	// should have had then. That is the revision of the last offer where it lacks
	// nothing.
	Revision int64
	// Besides is as Revision, with what the client refused and was not sent again left
	// out. What it keeps for what it refused is not left out.
	Besides int64
	// Offered is the revision of the last offer, and Changed that of the last one
	// that made a difference to the client. Grown is another number whenever the
	// client has come to want more of what was offered already.
	Offered, Changed int64
	Grown            int
	// Acked is the last response it took. Rejection is set where it refused the
	// last one. Sent is the one under way, whose nonce is empty where none is.
	Acked     Mark
	Rejection *Rejection
	Sent      Mark
}

// Status tells how well the client is in step.
func (s *Session) Status() Status {
	st := Status{Acked: s.acked, Rejection: s.rejected, Revision: s.covered, Besides: s.besides, Offered: s.revision, Changed: s.changed, Grown: s.grown}
	if s.inflight != nil {
		st.Sent = s.inflight.Mark
	}
	switch {
	case !s.started:
		st.State = NotSent
	case s.rejected != nil && s.inflight == nil:
		st.State = Rejected
		if !s.Pending() {
			st.Besides = s.revision
		}
	case s.Pending():
		st.State = Stale
	default:
		st.State, st.Revision, st.Besides = Synced, s.revision, s.revision
	}
	return st
}

// Rests says whether there is nothing to say, and whoever asks for the type has all of
// it: until something is, it has what it is offered, at whatever revision. Nobody may
// have asked for it yet.
func (s *Session) Rests() bool {
	return s.inflight == nil && s.has == s.offered && !s.owes && s.rejected == nil &&
		s.asked.Len()+s.refused.Len()+s.resend.Len() == 0 || !s.started && s.resend.Len() == 0
}

// Acked is the last response that the client took.
func (s *Session) Acked() Mark { return s.acked }

// Refused iterates over the names that the client refused and was not sent again,
// in order, with what it should have of each, nil where there is none.
func (s *Session) Refused() iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		for name := range s.refused.Keys() {
			if s.asks(name) && !yield(name, s.offered.Value(name)) {
				return
			}
		}
	}
}
