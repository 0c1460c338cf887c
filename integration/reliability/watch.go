package reliability

import (
	"cmp"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
)

// Watches checks every watch of the API:
//
//	WATCH-ORD        the events of a key come in order
//	WATCH-UNIQUE     no event comes twice
//	WATCH-RELIABLE   none is missing
//	WATCH-ATOMIC     events of one revision come together
//	WATCH-RESUMABLE  a watch that resumes elsewhere misses and repeats nothing
//	WATCH-BOOKMARK   nothing from before a bookmark comes after it
//	RELIST-EQ        the events of a list of the whole store add up to its content, with every deletion once
func Watches(h *History) []Violation {
	var out report
	for _, w := range h.Watches {
		j := judge{h: h, w: w, held: maps.Clone(w.Held), at: w.From, out: &out}
		if j.held == nil {
			j.held = map[Key]Version{}
		}
		j.run()
	}
	return out
}

// judge checks the events of one watch.
type judge struct {
	h      *History
	w      Watch
	held   map[Key]Version // the sum of the events so far
	at     int64           // greatest revision so far
	marked int64           // of the last bookmark
	last   map[Key]int64   // revision of the last event of each key
	first  int64           // revision of the first event
	silent int64           // up to which nothing is complete, since a list brings it
	seen   map[Delivery]bool
	// broken prevents that one fault is reported again with every later event.
	broken bool
	out    *report
}

func (j *judge) run() {
	j.seen, j.last = map[Delivery]bool{}, map[Key]int64{}
	for i, e := range j.w.Events {
		if e.Type == Bookmark {
			j.bookmark(e)
			continue
		}
		if j.first == 0 {
			j.first = e.Revision
		}
		if l, ok := j.isListDeletion(e); ok {
			j.handleListDeletion(e, l)
			continue
		}
		j.event(e)
		j.held = Apply(j.held, e)
		j.last[e.Key] = e.Revision
		j.at = max(j.at, e.Revision)
		last := i == len(j.w.Events)-1 || j.w.Events[i+1].Revision > e.Revision
		if last && !j.listed(j.at) && j.at > j.silent {
			j.compare(j.at, "WATCH-ATOMIC")
		}
	}
}

// lag is how many revisions a watcher may be behind its replica when that lists again: as many
// as a replica keeps for watchers. It is more than a few if a paused store sends all at once,
// and has compacted the rest.
const lag = cache.DefaultHistory

// isListDeletion reports whether an event is a deletion from a list of the whole store. Such an
// event has the watcher's revision before the list, since the revision of the deletion itself
// is unknown.
func (j *judge) isListDeletion(e Delivery) (Listed, bool) {
	if e.Type != Deleted || j.h.Truth.changedAt(e.Key, e.Revision) && j.h.Truth.At(e.Key, e.Revision).Value == 0 {
		return Listed{}, false
	}
	for _, l := range j.h.Listed {
		if l.Replica == j.w.Replica && l.After > 0 && l.After-lag <= e.Revision && e.Revision <= l.After {
			return l, true
		}
	}
	return Listed{}, false
}

// handleListDeletion handles such an event: the watcher had the object, and the object was
// deleted, or deleted and created again, up to the list's revision.
func (j *judge) handleListDeletion(e Delivery, l Listed) {
	if _, had := j.held[e.Key]; !had {
		j.fault("RELIST-EQ", "the deletion of %s at %d was told, and the watcher had no such object", e.Key, e.Revision)
	}
	if len(j.h.Truth.Between(e.Key, e.Revision, l.Revision)) == 0 {
		j.fault("RELIST-EQ", "the deletion of %s was told by the list at %d, and it never went", e.Key, l.Revision)
	}
	j.held = Apply(j.held, e)
	j.last[e.Key] = max(j.last[e.Key], e.Revision)
	j.silent = max(j.silent, l.Revision)
}

// mayRepeat reports whether an event may repeat what the watcher has heard. A watch includes its
// first revision, of which the client may have seen a part. And a list may have brought several
// revisions in one step.
func (j *judge) mayRepeat(e Delivery) bool {
	return e.Revision == j.w.From || (j.w.Resumed && j.listed(e.Revision) && e.Revision <= max(j.held[e.Key].Revision, j.last[e.Key]))
}

func (j *judge) event(e Delivery) {
	bare := Delivery{Type: e.Type, Key: e.Key, Revision: e.Revision}
	before, had := j.held[e.Key]
	if j.seen[bare] {
		j.fault("WATCH-UNIQUE", "%s of %s at %d came twice", e.Type, e.Key, e.Revision)
	}
	j.seen[bare] = true
	if e.Revision <= j.marked {
		j.fault("WATCH-BOOKMARK", "%s of %s at %d came after the bookmark of %d", e.Type, e.Key, e.Revision, j.marked)
	}
	if j.mayRepeat(e) {
		return
	}
	switch {
	case e.Type == Deleted && !had:
		j.fault("RELIST-EQ", "the deletion of %s at %d was told, and the watcher had no such object", e.Key, e.Revision)
	case e.Type == Added && had:
		j.fault("RELIST-EQ", "%s was added at %d, and the watcher had it at %d", e.Key, e.Revision, before.Revision)
	case e.Type == Modified && !had:
		j.fault("WATCH-RELIABLE", "%s was modified at %d, and the watcher was never told of it", e.Key, e.Revision)
	}
	from := max(before.Revision, j.last[e.Key])
	if e.Revision <= from {
		j.fault("WATCH-ORD", "%s of %s at %d came after %d", e.Type, e.Key, e.Revision, from)
		return
	}
	j.missing(e, max(from, j.w.From))
	if e.Type != Deleted && !slices.Contains(j.h.Truth.Of(e.Key), Event{Revision: e.Revision, Key: e.Key, Value: e.Value}) {
		j.fault("WATCH-RELIABLE", "%s of %s=%d at %d, and the store never had that", e.Type, e.Key, e.Value, e.Revision)
	}
}

// missing reports a change of a key after a revision that the watch skipped before an event. It
// may skip what a list of the whole store brought.
func (j *judge) missing(e Delivery, after int64) {
	for _, passed := range j.h.Truth.Between(e.Key, after, e.Revision-1) {
		if j.brought(e, passed.Revision) {
			continue
		}
		j.fault(j.brokenInvariant(passed.Revision), "the change of %s at %d was passed over: the next that came is that at %d", e.Key, passed.Revision, e.Revision)
		return
	}
}

// brought reports whether a list of the whole store explains that a revision was skipped. Then
// the event shows the object as in the list, or the watcher already had it as in the list.
func (j *judge) brought(e Delivery, passed int64) bool {
	return slices.ContainsFunc(j.h.Listed, func(l Listed) bool {
		return l.Replica == j.w.Replica && l.covers(passed) && (l.After == 0 ||
			e.Revision == j.h.Truth.Last(e.Key, l.Revision).Revision || j.held[e.Key] == j.h.Truth.At(e.Key, l.Revision))
	})
}

// brokenInvariant returns the invariant that a watch breaks if it skips a revision. A resumed watch that
// skips something before its first event did not resume where it stopped.
func (j *judge) brokenInvariant(revision int64) string {
	if j.w.Resumed && j.w.From < revision && revision < j.first {
		return "WATCH-RESUMABLE"
	}
	return "WATCH-RELIABLE"
}

// bookmark checks that everything up to a revision has come.
func (j *judge) bookmark(e Delivery) {
	if e.Revision < j.at {
		j.fault("WATCH-BOOKMARK", "a bookmark of %d came after an event at %d", e.Revision, j.at)
	}
	j.marked, j.at = e.Revision, max(j.at, e.Revision)
	invariant := "WATCH-BOOKMARK"
	if j.listed(e.Revision) {
		invariant = "RELIST-EQ"
	}
	j.compare(e.Revision, invariant)
}

// compare compares the sum of the events with the truth at a revision.
func (j *judge) compare(revision int64, invariant string) {
	if j.broken {
		return
	}
	want := j.h.Truth.In(j.w.Scope, revision)
	for _, key := range differences(j.held, want) {
		j.broken = true
		if invariant == "WATCH-ATOMIC" && !j.h.Truth.changedAt(key, revision) {
			invariant = j.brokenInvariant(j.h.Truth.Last(key, revision).Revision)
		}
		j.fault(invariant, "at revision %d the watcher has %s at %+v, and the store had %+v", revision, key, j.held[key], want[key])
	}
}

// listed reports whether the replica learnt a revision by a list of the whole store, which
// brings several revisions in one step.
func (j *judge) listed(revision int64) bool { return j.h.listed(j.w.Replica, revision) }

func (h *History) listed(replica string, revision int64) bool {
	return slices.ContainsFunc(h.Listed, func(l Listed) bool { return l.Replica == replica && l.covers(revision) })
}

// covers reports whether a watcher may learn a revision by the list.
func (l Listed) covers(revision int64) bool {
	after := l.After
	if after > 0 {
		after -= lag
	}
	return after < revision && revision <= l.Revision
}

func (j *judge) fault(invariant, format string, args ...any) {
	j.out.add(invariant, "a watch of %s by %s from %d: "+format, append([]any{j.w.Scope, j.w.Replica, j.w.From}, args...)...)
}

// Apply applies an event to what a watcher holds, and returns it.
func Apply(held map[Key]Version, e Delivery) map[Key]Version {
	if e.Type == Deleted {
		delete(held, e.Key)
	} else {
		held[e.Key] = Version{Revision: e.Revision, Value: e.Value}
	}
	return held
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
