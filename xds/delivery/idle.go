package delivery

import "github.com/portolan-mesh/portolan/xds/delivery/protocol"

// idleness says whether a type is idle: the client has what is desired, and nothing is
// due, awaited or held. An idle type costs next to nothing: SetDesired skips it while its
// set stays the same.
type idleness struct {
	idle  bool
	count int // how often the type became idle
}

// markIdle makes all types idle that can be.
func (s *Sequencer) markIdle() {
	for _, t := range s.types {
		if !t.idle && t.nothingHeld() && t.sub.Idle() {
			t.idle = true
			t.count++
		}
	}
}

// nothingHeld says whether nothing of a type is awaited or held back.
func (t *typeState) nothingHeld() bool {
	return !t.retains() && t.awaited.until.IsZero() && !t.held.whole && len(t.keptSince) == 0 && len(t.held.since) == 0
}

// active wakes a type and brings its subscription to the present revision. Whoever changes
// the subscription of a type that may be idle goes through it.
func (t *typeState) active() *protocol.Subscription {
	if t.idle {
		t.idle = false
		t.sub.CatchUp(t.sequencer.revision)
	}
	return t.sub
}

// Idle says whether a type, by its index in the order of sending, is idle: 0 if not, and
// another number each time that it becomes idle. The client of an idle type has what is
// desired, at any revision until Revision, or has not requested the type.
// ExpectsSubscription and OnlyKeptRemovals are then false, and Waiting is 0. The
// subscription keeps the status of when the type became idle, until the type wakes.
func (s *Sequencer) Idle(index int) int {
	if t := s.types[index]; t.idle {
		return t.count
	}
	return 0
}

// Revision returns the revision of the last SetDesired.
func (s *Sequencer) Revision() int64 { return s.revision }
