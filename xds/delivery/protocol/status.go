package protocol

import (
	"iter"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
)

// State says whether a client is in sync, in the words of the command line.
type State string

// The states of a type on a stream.
const (
	NotSent  State = "NOT SENT"
	Synced   State = "SYNCED"
	Stale    State = "STALE"
	Rejected State = "REJECTED"
)

// Status is the known progress of a client.
type Status struct {
	State State
	// AckedRevision is the newest revision of the store of which the client has
	// everything. If the client lacks nothing it is the revision of the last SetDesired.
	AckedRevision int64
	// AckedIgnoringRejected is like AckedRevision, but ignores rejected resources that
	// were not sent again since.
	AckedIgnoringRejected int64
	// Desired is the revision of the last SetDesired, and Changed of the last one that
	// made a difference to the client. Widened changes whenever the client comes to need
	// more of an unchanged set.
	Desired, Changed int64
	Widened          int
	// LastACK is the last response it acknowledged. LastNACK is the newest rejection
	// that stands; nil if there is none.
	// Sent is the response in flight; its nonce is empty if there is none.
	LastACK  ResponseID
	LastNACK *Rejection
	Sent     ResponseID
}

// Status returns the progress of the client.
func (s *Subscription) Status() Status {
	st := Status{LastACK: s.lastACK, LastNACK: s.newestRejection(), AckedRevision: s.ackedRevision, AckedIgnoringRejected: s.ackedIgnoringRejected, Desired: s.revision, Changed: s.changedAt, Widened: s.widened}
	if s.inflight != nil {
		st.Sent = s.inflight.ResponseID
	}
	switch {
	case !s.started:
		st.State = NotSent
	case s.rejected.Len() > 0 && s.inflight == nil && !s.Searching():
		st.State = Rejected
		if !s.Pending() {
			st.AckedIgnoringRejected = s.revision
		}
	case s.Pending():
		st.State = Stale
	default:
		st.State, st.AckedRevision, st.AckedIgnoringRejected = Synced, s.revision, s.revision
	}
	return st
}

// Idle says whether nothing is to be sent, and a client that requests the type has all
// of it. While a type is idle the client has the desired resources, at whatever
// revision. The client may not have requested the type yet.
func (s *Subscription) Idle() bool {
	return s.inflight == nil && s.acked == s.desired && !s.mustRespond && s.search == nil &&
		s.mustAnswer.Len()+s.rejected.Len()+s.resend.Len() == 0 || !s.started && s.resend.Len() == 0
}

// LastACK returns the last response that the client acknowledged.
func (s *Subscription) LastACK() ResponseID { return s.lastACK }

// Names returns the names that the client requests.
func (s *Subscription) Names() nameset.Set { return s.names }

// Unanswered returns how many requested names have an answer due or in flight: names that
// were requested again, and names that do not exist, which the client does not know yet.
func (s *Subscription) Unanswered() int {
	if s.inflight == nil {
		return s.mustAnswer.Len()
	}
	return s.mustAnswer.Len() + len(s.inflight.unknown)
}

// RejectedForms returns the rejections that stand, by name. Equal maps mean the same
// rejections.
func (s *Subscription) RejectedForms() pmap.Map[*RejectedForm] { return s.rejected }

// Rejected iterates, in the order of their names, over the resources that the client
// rejected alone in a response, and that were not sent again since.
func (s *Subscription) Rejected() iter.Seq2[string, *Rejection] {
	return func(yield func(string, *Rejection) bool) {
		for name, r := range s.rejected.All() {
			if s.subscribes(name) && !yield(name, r.Rejection) {
				return
			}
		}
	}
}
