package delivery

import (
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// idleType says whether a type is idle: the client has what is desired, and nothing is
// due, awaited or held. An idle type costs nothing: SetDesired skips it while its set
// stays the same. All idleTypes of a sequencer lie together in memory, so the check is
// cheap.
type idleType struct {
	url   string
	idle  bool
	set   resource.Set // the desired set when the type became idle
	count int          // how often the type became idle
}

// markIdle makes all types idle that can be.
func (s *Sequencer) markIdle() {
	for i, t := range s.types {
		if idle := &s.idle[i]; !idle.idle && t.nothingHeld() && t.sub.Idle() {
			idle.idle, idle.set = true, t.sub.DesiredSet()
			idle.count++
		}
	}
}

// nothingHeld says whether nothing of a type is awaited or held back.
func (t *typeState) nothingHeld() bool {
	return !t.retains && t.awaited.until.IsZero() && t.held.allSince.IsZero() &&
		len(t.keptSince) == 0 && len(t.held.since) == 0
}

// wakeType ends the idleness of a type, and brings its subscription to the present
// revision.
func (s *Sequencer) wakeType(index int) {
	if idle := &s.idle[index]; idle.idle {
		idle.idle = false
		sub := s.types[index].sub
		sub.SetDesired(idle.set, s.revision)
		sub.SetDesired(idle.set, s.revision) // notes that the client has all of this revision
	}
}

// active wakes a type, and returns its subscription.
func (t *typeState) active() *protocol.Subscription {
	t.sequencer.wakeType(t.index)
	return t.sub
}

// Idle says whether a type, by its index, is idle: 0 if not, and another number each
// time that it becomes idle. The client of an idle type has what is desired, at any
// revision until Revision, or has not requested the type. ExpectsSubscription and
// OnlyKeptRemovals are then false, and Waiting is 0. The subscription has the status of
// when the type became idle, until Subscription wakes it.
func (s *Sequencer) Idle(index int) int {
	if idle := &s.idle[index]; idle.idle {
		return idle.count
	}
	return 0
}

// Revision returns the revision of the last SetDesired.
func (s *Sequencer) Revision() int64 { return s.revision }
