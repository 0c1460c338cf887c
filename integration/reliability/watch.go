package reliability

import (
	"cmp"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/cache"
)

// Watches checks every watch of the API: the events of a key come in order
// (WATCH-ORD) and once (WATCH-UNIQUE), none is missing (WATCH-RELIABLE), those of
// one revision come together (WATCH-ATOMIC), a watch that goes on somewhere else
// misses and repeats nothing (WATCH-RESUMABLE), nothing from before a bookmark
// comes after it (WATCH-BOOKMARK), and what comes of a list of the whole store
// adds up to what there was, with every deletion once (RELIST-EQ).
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

// judge walks through the events of one watch.
type judge struct {
	h      *History
	w      Watch
	held   map[Key]Version // what the events so far add up to
	at     int64           // greatest revision so far
	marked int64           // of the last bookmark
	last   map[Key]int64   // revision of the last event of each key
	first  int64           // revision of the first event
	silent int64           // up to which nothing is complete, since a list brings it
	seen   map[Delivery]bool
	// broken keeps one fault from being told with every event after it.
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
		if l, ok := j.leaps(e); ok {
			j.leapt(e, l)
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

// lag is how many revisions a watcher may be behind its replica when that lists
// anew: as many as a replica keeps for those who follow. More than a few of them
// come where a store that was held tells all at once, and has compacted the rest.
const lag = cache.DefaultHistory

// leaps says whether an event is of a deletion that a list of the whole store
// brought: such a one bears the revision that the watcher had before, since when
// it was is not known.
func (j *judge) leaps(e Delivery) (Listed, bool) {
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

// leapt takes such an event in: the object was there, and is not at the revision
// of the list, or was made anew.
func (j *judge) leapt(e Delivery, l Listed) {
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

// again says whether an event repeats what the watcher has heard, as it may: a
// watch begins with the revision that it is given, of which a client may have
// seen a part, and a list may have brought several revisions in one step.
func (j *judge) again(e Delivery) bool {
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
	if j.again(e) {
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

// missing reports the changes of a key after a revision that were passed over on
// the way to an event. Those that a list of the whole store brought may be.
func (j *judge) missing(e Delivery, after int64) {
	for _, passed := range j.h.Truth.Between(e.Key, after, e.Revision-1) {
		if j.brought(e, passed.Revision) {
			continue
		}
		j.fault(j.lost(passed.Revision), "the change of %s at %d was passed over: the next that came is that at %d", e.Key, passed.Revision, e.Revision)
		return
	}
}

// brought says whether a list of the whole store passed a revision over on the way
// to an event: that tells of the object as the list found it, or of what came after
// while the watcher had it as the list found it.
func (j *judge) brought(e Delivery, passed int64) bool {
	return slices.ContainsFunc(j.h.Listed, func(l Listed) bool {
		return l.Replica == j.w.Replica && l.covers(passed) && (l.After == 0 ||
			e.Revision == j.h.Truth.Last(e.Key, l.Revision).Revision || j.held[e.Key] == j.h.Truth.At(e.Key, l.Revision))
	})
}

// lost is the invariant that a watch breaks which does not tell of a revision:
// one that goes on, and loses something before the first that it tells, does not
// go on where it stopped.
func (j *judge) lost(revision int64) string {
	if j.w.Resumed && j.w.From < revision && revision < j.first {
		return "WATCH-RESUMABLE"
	}
	return "WATCH-RELIABLE"
}

// bookmark checks that all up to a revision has come.
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

// compare checks what the events add up to against the truth at a revision.
func (j *judge) compare(revision int64, invariant string) {
	if j.broken {
		return
	}
	want := j.h.Truth.In(j.w.Scope, revision)
	for _, key := range differences(j.held, want) {
		j.broken = true
		if invariant == "WATCH-ATOMIC" && !j.h.Truth.changedAt(key, revision) {
			invariant = j.lost(j.h.Truth.Last(key, revision).Revision)
		}
		j.fault(invariant, "at revision %d the watcher has %s at %+v, and the store had %+v", revision, key, j.held[key], want[key])
	}
}

// listed says whether the replica learnt of a revision by a list of the whole
// store, which brings several revisions in one step.
func (j *judge) listed(revision int64) bool { return j.h.listed(j.w.Replica, revision) }

func (h *History) listed(replica string, revision int64) bool {
	return slices.ContainsFunc(h.Listed, func(l Listed) bool { return l.Replica == replica && l.covers(revision) })
}

// covers says whether a watcher may learn of a revision by the list.
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

// Apply is what a watcher holds after an event.
func Apply(held map[Key]Version, e Delivery) map[Key]Version {
	if e.Type == Deleted {
		delete(held, e.Key)
	} else {
		held[e.Key] = Version{Revision: e.Revision, Value: e.Value}
	}
	return held
}

// sortedKeys are the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
