package progress

import (
	"time"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Tracker follows the subscription of one type on one connection, and keeps its Type up
// to date. Its owner calls Follow after each turn in which something may have changed.
type Tracker struct {
	Type

	lastDesired int64 // the subscription's Desired at the last Follow; 0 before the type was requested
	latest      Range // the newest change

	// A follow-up: a change of another type makes the proxy request more of this one, as a
	// change of clusters makes it request their endpoints.
	followUp     bool  // the proxy lacks some of what it requested so
	followUpOpen bool  // it lacks more than resources that it rejects, and removals of what it uses in their place
	followUpFrom int64 // what it lacks came with the revisions after this one
	caughtUpAt   int64 // the last revision at which it lacked no more than those

	rejected pmap.Map[*protocol.RejectedForm] // that Rejections was made of
	// lastHad has the revision at which the proxy last had what it should have, by the names of
	// resources that it has rejected since.
	lastHad map[string]int64
}

// Turn is what a Tracker must know about a turn, besides the subscription.
type Turn struct {
	Now time.Time
	// Idle is the number that Unchanged takes. LastRevision is the revision of the last
	// turn.
	Idle         int
	LastRevision int64
	// Expecting says that the proxy took a change of another type, and is about to request
	// more of this type because of it.
	Expecting bool
	// Stuck says that the proxy lacks only removals, of resources that it still uses in
	// place of rejected ones.
	Stuck bool
	// Cause is the last change of a type that makes proxies request more of this one; the
	// zero Range if there is none.
	Cause Range
}

// Origins finds the objects to which the rejection of a resource is due; held is the resource that the
// proxy has in its place, nil for none. The proxy last had what it should have of it at a revision, 0 if
// it never had.
type Origins func(rejected, held *resource.Resource, since int64) []config.Key

// Latest returns the range of the newest change of the type.
func (t *Tracker) Latest() Range { return t.latest }

// Unchanged says whether the type has been idle since the last Follow, so that another
// Follow is not needed. idle is 0 for a type that is not idle, and another number each time
// that it becomes idle.
func (t *Tracker) Unchanged(idle int) bool { return idle != 0 && t.idle == idle }

// Follow updates the Type from a subscription.
func (t *Tracker) Follow(sub *protocol.Subscription, turn Turn, origins Origins) {
	if t.idle != 0 && t.State == protocol.Synced { // it was idle, and had all
		t.lastDesired, t.caughtUpAt = turn.LastRevision, turn.LastRevision
	}
	t.idle = turn.Idle
	st := sub.Status()
	t.noteChange(st)
	if turn.Expecting || st.Widened != t.Widened {
		t.noteFollowUp(turn.Cause)
	}
	st = t.withFollowUps(st, turn)
	switch lacks := st.State == protocol.Stale || st.State == protocol.Rejected; {
	case !lacks:
		t.StaleSince = time.Time{}
	case t.StaleSince.IsZero():
		t.StaleSince = turn.Now
	}
	switch rejected := sub.RejectedForms(); {
	case st.LastNACK == nil:
		t.rejected, t.Rejections = pmap.Map[*protocol.RejectedForm]{}, nil
	case sub.Searching():
	case rejected != t.rejected || len(t.Rejections) == 0:
		t.rejected, t.Rejections = rejected, t.rejections(sub, st, origins)
	}
	for name := range t.lastHad {
		if sub.Acked(name) == sub.Desired(name) {
			delete(t.lastHad, name)
		}
	}
	t.Status = st
}

// noteChange notes a change that concerns the proxy.
func (t *Tracker) noteChange(st protocol.Status) {
	switch {
	case st.State == protocol.NotSent:
		return
	case st.Desired < t.lastDesired: // the store is another one
		t.latest, t.caughtUpAt = Range{0, st.Desired}, 0
		t.Changes = Ranges{t.latest}
	case st.Desired > t.lastDesired && st.Changed > t.lastDesired:
		t.latest = Range{t.lastDesired, st.Desired}
		t.Changes = t.Changes.with(t.latest)
	}
	t.lastDesired = st.Desired
}

// noteFollowUp notes that the proxy requests more of the type because of a change of
// another; the zero Range is no such change.
func (t *Tracker) noteFollowUp(cause Range) {
	if cause == (Range{}) {
		return
	}
	if !t.Changes.contain(cause) {
		t.Changes = t.Changes.including(cause)
		t.latest = cause
	}
	if !t.followUp || cause.From < t.followUpFrom {
		t.followUpFrom = cause.From
	}
	t.followUp, t.followUpOpen = true, true
}

// withFollowUps corrects the status of a subscription: the subscription knows neither
// what the proxy is about to request, nor since when it lacks what it requested.
func (t *Tracker) withFollowUps(st protocol.Status, turn Turn) protocol.Status {
	if turn.Expecting && (st.State == protocol.NotSent || st.State == protocol.Synced) {
		st.State = protocol.Stale
	}
	onlyRejected := st.State == protocol.Rejected && st.AckedIgnoringRejected == st.Desired
	if !turn.Expecting && (turn.Stuck || onlyRejected || st.State == protocol.Synced) {
		t.followUpOpen, t.caughtUpAt = false, st.Desired
	}
	t.followUp = t.followUp && st.State != protocol.Synced
	if st.AckedIgnoringRejected = max(st.AckedIgnoringRejected, t.caughtUpAt); t.followUpOpen {
		st.AckedIgnoringRejected = min(st.AckedIgnoringRejected, t.followUpFrom)
	}
	if t.followUp {
		st.AckedRevision = min(st.AckedRevision, t.followUpFrom)
	}
	return st
}

// maxTraced bounds the rejections of a type that are traced to objects.
const maxTraced = 64

// rejections returns all rejections that stand. It reuses known ones.
func (t *Tracker) rejections(sub *protocol.Subscription, st protocol.Status, origins Origins) []Rejected {
	knownBefore := make(map[string]*Rejected, len(t.Rejections))
	for i := range t.Rejections {
		knownBefore[t.Rejections[i].Name] = &t.Rejections[i]
	}
	var out []Rejected
	for name, r := range sub.Rejected() {
		if known := knownBefore[name]; known != nil && known.Rejection == r {
			out = append(out, *known)
			continue
		}
		next := t.newRejected(name, r)
		since, again := t.lastHad[name]
		if !again {
			if t.lastHad == nil {
				t.lastHad = map[string]int64{}
			}
			since = next.From
			t.lastHad[name] = since
		}
		if desired := sub.Desired(name); desired != nil {
			if next.Version = desired.Version; len(out) < maxTraced {
				next.Objects = origins(desired, sub.Acked(name), since)
			}
		}
		out = append(out, next)
	}
	if len(out) == 0 && st.LastNACK != nil {
		out = append(out, t.newRejected("", st.LastNACK))
	}
	return out
}

// During a follow-up, the range includes the change that caused the request.
func (t *Tracker) newRejected(name string, r *protocol.Rejection) Rejected {
	from := min(r.HadAllAt, r.Revision-1)
	if t.followUp {
		from = min(from, t.followUpFrom)
	}
	return Rejected{Range: Range{from, r.Revision}, Name: name, Rejection: r}
}
