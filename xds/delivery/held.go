package delivery

import (
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// held tracks the additions of a type that are due and wait until the client can use what
// they need.
type held struct {
	// since says when each waiting name began to wait; for an inner type, each scope.
	since map[string]time.Time
	// whole says that the type waits as a whole, as in a first sync; since has no names
	// then.
	whole bool
	// late are the resources that additions allowed only because their limit has passed.
	late []Late
}

// takeLate returns the late resources of the response that was just made.
func (h *held) takeLate() []Late {
	out := h.late
	h.late = nil
	return out
}

// holdWhole says whether a type waits as a whole. In a first sync, listeners and routes
// wait until the client has the first clusters and what these need. That way they need
// not be checked one by one.
func (s *Sequencer) holdWhole(t *typeState, now time.Time) bool {
	if !t.sendsTraffic || t.Scoped || t.sub.InFlight() || !t.sub.FirstSync() || !s.target.firstSync() {
		return false
	}
	t.held.whole = true
	return now.Before(s.lateFrom())
}

// noteProgress notes that a client in its first sync has requested a type, is sent its
// first response, or has acknowledged that. The limit of the types that wait for this one
// starts again. A stream has few such moments.
func (s *Sequencer) noteProgress(t *typeState, now time.Time) {
	if t.isTargetOrNeeded() {
		s.lastProgress = latest(s.lastProgress, now)
	}
}

// lateFrom returns when types that wait as a whole stop waiting.
func (s *Sequencer) lateFrom() time.Time {
	limit := s.limits.Ready
	for _, t := range s.types {
		limit += t.digestTime
	}
	return s.lastProgress.Add(limit)
}

// perSecond is how many bytes of a first response give a client one more second: an
// Envoy makes thousands of clusters of them before it answers.
const perSecond = 1 << 20

// digestTime returns how much longer a client may take to answer a response, given its
// size.
func digestTime(r *protocol.Response) time.Duration {
	size := 0
	for _, one := range r.Resources {
		size += len(one.Body.GetValue())
	}
	return time.Duration(size/perSecond) * time.Second
}

// noteActivity extends limits by what the client did last, if something waits for that. A
// type that waits as a whole waits as long as the client goes on taking a first response,
// however long that is. A removal waits as long as the client may be about to request
// other types, and to state what needs it.
func (s *Sequencer) noteActivity() {
	if s.limits.LastActivity == nil {
		return
	}
	whole, keeps, silent := false, false, false
	for _, t := range s.types {
		whole = whole || t.held.whole
		keeps = keeps || len(t.keptSince) > 0
		silent = silent || !t.Optional && !t.sub.Started()
	}
	if !whole && !(keeps && silent) {
		return
	}
	sent, took := s.limits.LastActivity()
	if whole {
		s.lastProgress = latest(s.lastProgress, took)
	}
	if keeps && silent {
		s.lastFirstRequest = latest(s.lastFirstRequest, sent)
	}
}

// additions returns what the next response of a type may add, as an Allow. Add notes in
// held.since which names have to wait, and since when.
func (s *Sequencer) additions(t *typeState, now time.Time) protocol.Allow {
	t.held.late = nil
	if t.Together {
		return protocol.Allow{Together: true, Remove: always}
	}
	if t.sub.InFlight() || !t.sub.HasAdditions() {
		if !t.sub.InFlight() {
			t.held.since = nil
		}
		return t.wholeScopes(nil)
	}
	before := t.held.since
	t.held.since = nil
	if t.Scoped {
		return t.wholeScopes(s.heldScopes(t, before, now))
	}
	turns := t.turns()
	if !s.mayHold(t) {
		return turns.within(protocol.Additions())
	}
	allow := protocol.Allow{Add: func(name string) bool {
		if t.mayStateEmptied(name) {
			return false
		}
		missing, waits := t.scopeToEmpty(name)
		if !waits && t.sendsTraffic {
			missing, waits = s.missing(t, name)
		}
		if !waits || !s.hold(t, name, missing, before, now) { // it has waited too long, and goes late
			return true
		}
		return s.preannouncement(t, name) != nil
	}}
	if t.Preannounce != nil {
		allow.Interim = func(name string) *resource.Resource { return s.preannouncement(t, name) }
	}
	return turns.within(allow)
}

// mayHold says whether any addition of a type may have to wait.
func (s *Sequencer) mayHold(t *typeState) bool {
	if t.sendsTraffic && (t.Preannounce != nil || !s.target.allUsable()) {
		return true
	}
	for inner := range t.scopedTypes {
		if len(inner.sub.Removals()) > 0 {
			return true
		}
	}
	return t.mayStateScopes()
}

// missing returns a target that holds back the resource of a name: the resource sends
// traffic to it, and the client cannot use it. It returns false if there is none.
func (s *Sequencer) missing(t *typeState, name string) (string, bool) {
	r := t.sub.Desired(name)
	switch {
	case r == nil:
		return "", false
	case t.mayPreannounce(name):
		return s.notPreannounced(t, name)
	}
	for target := range r.EachRef {
		if !s.target.ready(target) {
			return target, true
		}
	}
	return "", false
}

// hold makes a name wait, and returns true. If the name has waited for the limit already,
// hold notes it as late and returns false.
func (s *Sequencer) hold(t *typeState, name, missing string, before map[string]time.Time, now time.Time) bool {
	since, waited := before[name]
	switch {
	case waited:
	case t.held.whole:
		since = s.lastProgress
	default:
		since = now
	}
	if now.Sub(since) >= s.limits.Ready {
		t.held.late = append(t.held.late, Late{TypeURL: t.URL, Name: name, Missing: missing})
		return false
	}
	if t.held.since == nil {
		t.held.since = map[string]time.Time{}
	}
	t.held.since[name] = since
	return true
}
