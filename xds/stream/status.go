package stream

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
	// Revision of the store that the client is known to be at: that of the last
	// offer where it lacks nothing, else of the last response that it took.
	Revision int64
	// Acked is the last response it took. Rejection is set where it refused the
	// last one.
	Acked     Mark
	Rejection *Rejection
}

// Status tells how well the client is in step.
func (s *Session) Status() Status {
	st := Status{Acked: s.acked, Rejection: s.rejected, Revision: s.acked.Revision}
	switch {
	case !s.started:
		st.State = NotSent
	case s.rejected != nil && s.inflight == nil:
		st.State, st.Revision = Rejected, s.rejected.at
	case s.Pending():
		st.State = Stale
	default:
		st.State, st.Revision = Synced, s.revision
	}
	return st
}
