package reliability_test

import (
	"slices"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/integration/reliability"
)

// Two objects that are written together, and a single one.
const (
	alone reliability.Key = "ServiceEntry/single/a"
	left  reliability.Key = "ServiceEntry/group/x"
	right reliability.Key = "VirtualService/group/x"
)

// story returns a good history: one object is created, changed and deleted, two are written
// together, and everybody sees that correctly.
func story() *reliability.History {
	call := func(start, end int, class reliability.Class, revision int64, writes ...reliability.Write) reliability.Call {
		return reliability.Call{Replica: "p0", Start: at(start), End: at(end), Class: class, Revision: revision, Writes: writes}
	}
	return &reliability.History{
		Promises: reliability.Promises{
			Converge: time.Second, Fail: time.Second, Wait: time.Second, Newcomer: time.Second, End: time.Second, Linear: time.Second,
		},
		Truth: reliability.NewTruth([]reliability.Event{
			{Revision: 2, Key: alone, Value: 1}, {Revision: 3, Key: left, Value: 2}, {Revision: 3, Key: right, Value: 2},
			{Revision: 4, Key: alone, Value: 3}, {Revision: 5, Key: left, Value: 4}, {Revision: 5, Key: right, Value: 4},
			{Revision: 6, Key: alone},
		}),
		Calls: []reliability.Call{
			call(0, 10, reliability.OK, 2, reliability.Write{Key: alone, Verb: reliability.Create, Value: 1}),
			call(20, 30, reliability.OK, 3, together(2)...),
			call(40, 50, reliability.OK, 4, reliability.Write{Key: alone, Verb: reliability.Update, Given: 2, Value: 3}),
			call(41, 90, reliability.Conflict, 0, reliability.Write{Key: alone, Verb: reliability.Update, Given: 2, Value: 9}),
			call(60, 70, reliability.Unknown, 0, together(4)...),
			{Replica: "p1", Start: at(91), End: at(92), Key: alone, Consistent: true, Class: reliability.OK, Found: reliability.Version{Revision: 4, Value: 3}},
			{Replica: "p1", Start: at(91), End: at(92), Key: alone, Least: 4, Class: reliability.OK, Found: reliability.Version{Revision: 4, Value: 3}},
			{Replica: "p1", Start: at(93), End: at(94), Class: reliability.OK, Same: true, Revision: 5,
				Writes: []reliability.Write{{Key: alone, Verb: reliability.Update, Given: 4, Value: 3, Unchanged: true}}},
			call(95, 99, reliability.OK, 6, reliability.Write{Key: alone, Verb: reliability.Delete}),
		},
		Lists: []reliability.List{
			{Replica: "p0#1", Start: at(55), End: at(56), Scope: "ServiceEntry/group", Revision: 4, Objects: held(left, 3, 2)},
			{Replica: "p0#1", Start: at(80), End: at(81), Scope: "ServiceEntry/group", Least: 5, Revision: 5, Objects: held(left, 5, 4)},
		},
		Watches: []reliability.Watch{
			{Replica: "p0#1", Scope: "ServiceEntry/single", From: 1, Events: []reliability.Delivery{
				{Type: reliability.Added, Key: alone, Revision: 2, Value: 1}, {Type: reliability.Modified, Key: alone, Revision: 4, Value: 3},
				{Type: reliability.Bookmark, Revision: 5}, {Type: reliability.Deleted, Key: alone, Revision: 6, Value: 3},
			}},
			{Replica: "p1#1", Scope: "ServiceEntry/single", From: 2, Held: held(alone, 2, 1), Resumed: true, Events: []reliability.Delivery{
				{Type: reliability.Added, Key: alone, Revision: 2, Value: 1}, {Type: reliability.Modified, Key: alone, Revision: 4, Value: 3},
			}},
		},
		Pushes: []reliability.Push{
			{Replica: "p0#1", Stream: "s", At: at(31), Type: "Cluster", Revision: 3, Values: map[reliability.Key]int64{left: 2, right: 2},
				Present: []reliability.Key{alone}, Whole: true, Scope: "ServiceEntry/single"},
			{Replica: "p0#1", Stream: "s", At: at(71), Type: "Cluster", Revision: 5, Values: map[reliability.Key]int64{left: 4, right: 4}},
			{Replica: "p0#1", Stream: "s", At: at(99), Type: "Cluster", Revision: 6, Values: map[reliability.Key]int64{alone: 0}},
		},
		Samples:   []reliability.Sample{{Replica: "p0#1", Start: at(1000), End: at(1001), Revision: 5, Staleness: 0.9}},
		Listed:    []reliability.Listed{{Replica: "p0#1", Revision: 1}, {Replica: "p1#1", Revision: 1}},
		Newcomers: []reliability.Newcomer{{Replica: "p0", Took: at(100)}},
		Settled: []reliability.Settling{
			{Replica: "p0", Took: at(100), Revision: 6, Objects: final(), Resources: "r"},
			{Replica: "p1", Took: at(100), Revision: 6, Objects: final(), Resources: "r"},
		},
		Endings: []reliability.Ending{{Process: "p0#1", Took: at(100)}},
		Final:   final(),
	}
}

func at(milliseconds int) time.Duration { return time.Duration(milliseconds) * time.Millisecond }

func held(key reliability.Key, revision, value int64) map[reliability.Key]reliability.Version {
	return map[reliability.Key]reliability.Version{key: {Revision: revision, Value: value}}
}

func together(value int64) []reliability.Write {
	return []reliability.Write{{Key: left, Verb: reliability.Put, Value: value}, {Key: right, Verb: reliability.Put, Value: value}}
}

// TestStatuses: a status makes versions that no client wrote. A history with such versions is
// as good as one without, wherever they show up. But a checker still finds a version that is no
// status of the object, or a status of other content.
func TestStatuses(t *testing.T) {
	t.Parallel()
	story := func() *reliability.History {
		h := story()
		h.Said = reliability.NewSaid([]reliability.Event{{Revision: 7, Key: left}})
		h.Lists = append(h.Lists, reliability.List{Replica: "p0#1", Start: at(97), End: at(98), Scope: "ServiceEntry/group", Revision: 7, Objects: held(left, 7, 4)})
		h.Watches = append(h.Watches, reliability.Watch{Replica: "p0#1", Scope: "ServiceEntry/group", From: 4, Held: held(left, 3, 2), Events: []reliability.Delivery{
			{Type: reliability.Modified, Key: left, Revision: 5, Value: 4}, {Type: reliability.Modified, Key: left, Revision: 7, Value: 4}, {Type: reliability.Bookmark, Revision: 7},
		}})
		h.Calls = append(h.Calls, reliability.Call{Replica: "p1", Start: at(100), End: at(101), Key: left, Consistent: true, Class: reliability.OK, Found: reliability.Version{Revision: 7, Value: 4}})
		return h
	}
	if got := reliability.Judge(story()); len(got) > 0 {
		t.Fatalf("the good history: %v", got)
	}
	between := story()
	between.Said = reliability.NewSaid([]reliability.Event{{Revision: 3, Key: alone}, {Revision: 7, Key: left}})
	between.Calls[2].Writes[0].Given = 3 // at revision 3 it had the content of 2
	if got := reliability.Judge(between); len(got) > 0 {
		t.Errorf("a condition that names a status: %v", got)
	}
	for name, test := range map[string]struct {
		invariant string
		change    func(h *reliability.History)
	}{
		"a version in a list that is of nothing": {"WATCH-RELIABLE", func(h *reliability.History) { h.Said = nil }},
		"a status of what is not there any more": {"WATCH-RELIABLE", func(h *reliability.History) { h.Lists[2].Objects = held(left, 7, 2) }},
		"a status before the change":             {"WATCH-RELIABLE", func(h *reliability.History) { h.Watches[2].Events = h.Watches[2].Events[1:] }},
		"a read of what it was":                  {"CAS-LIN", func(h *reliability.History) { h.Calls[len(h.Calls)-1].Found.Value = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := story()
			test.change(h)
			if got := reliability.Broken(reliability.Judge(h)); !slices.Contains(got, test.invariant) {
				t.Errorf("found %v", got)
			}
		})
	}
}

func final() map[reliability.Key]reliability.Version {
	return map[reliability.Key]reliability.Version{left: {Revision: 5, Value: 4}, right: {Revision: 5, Value: 4}}
}

// TestCheckers makes one fault in a good history: the checker of the broken invariant reports
// it.
func TestCheckers(t *testing.T) {
	t.Parallel()
	if got := reliability.Judge(story()); len(got) > 0 {
		t.Fatalf("the good history: %v", got)
	}
	for _, test := range faults {
		t.Run(test.invariant+" "+test.name, func(t *testing.T) {
			t.Parallel()
			h := story()
			test.change(h)
			if got := reliability.Broken(reliability.Judge(h)); !slices.Contains(got, test.invariant) {
				t.Errorf("found %v", got)
			}
		})
	}
}

// TestEveryInvariantIsShownToBeFound: each invariant has a fault. Otherwise its checker might
// find nothing.
func TestEveryInvariantIsShownToBeFound(t *testing.T) {
	t.Parallel()
	var shown []string
	for _, test := range faults {
		shown = append(shown, test.invariant)
	}
	slices.Sort(shown)
	if got := slices.Compact(shown); !slices.Equal(got, reliability.Names()) {
		t.Errorf("faults are made for %v, and the checkers know %v", got, reliability.Names())
	}
}

// faults change story, by the invariant that they break.
var faults = []struct {
	invariant, name string
	change          func(h *reliability.History)
}{
	{"CAS-LIN", "a stale consistent read", func(h *reliability.History) {
		h.Calls[5].Found = reliability.Version{Revision: 2, Value: 1}
	}},
	{"CAS-LIN", "a compare and set that did not compare", func(h *reliability.History) { h.Calls[2].Writes[0].Given = 1 }},
	{"CAS-LIN", "a conflict with nobody", func(h *reliability.History) { h.Calls[3].Start, h.Calls[3].End = at(11), at(12) }},
	{"CAS-LIN", "an object that is there and was deleted", func(h *reliability.History) {
		h.Calls = append(h.Calls, reliability.Call{Start: at(200), End: at(201), Key: alone, Consistent: true, Class: reliability.OK,
			Found: reliability.Version{Revision: 4, Value: 3}})
	}},
	{"AMBIG", "refused and done", func(h *reliability.History) { h.Calls[2].Class = reliability.Conflict }},
	{"AMBIG", "done twice", func(h *reliability.History) { addEvent(h, reliability.Event{Revision: 7, Key: alone, Value: 3}) }},
	{"AMBIG", "by nobody", func(h *reliability.History) { addEvent(h, reliability.Event{Revision: 7, Key: alone, Value: 77}) }},
	{"AMBIG", "another revision", func(h *reliability.History) { h.Calls[0].Revision = 3 }},
	{"DURABLE", "acknowledged and lost", func(h *reliability.History) {
		h.Calls = append(h.Calls, reliability.Call{Start: at(200), End: at(201), Class: reliability.OK, Revision: 7,
			Writes: []reliability.Write{{Key: alone, Verb: reliability.Create, Value: 5}}})
	}},
	{"DURABLE", "a deletion lost", func(h *reliability.History) { h.Calls[8].Revision = 7 }},
	{"DURABLE", "gone in the end", func(h *reliability.History) { delete(h.Final, left) }},
	{"TXN-ALL", "half of a call landed", func(h *reliability.History) {
		h.Truth = reliability.NewTruth(slices.Delete(slices.Clone(h.Truth.Events), 5, 6))
	}},
	{"TXN-ALL", "half of a batch in a list", func(h *reliability.History) { h.Lists[1].Objects = held(left, 3, 2) }},
	{"TXN-ALL", "half of a batch in a response", func(h *reliability.History) { h.Pushes[1].Values[right] = 2 }},
	{"NOOP", "the same made a revision", func(h *reliability.History) { h.Calls[7].Writes[0].Unchanged = false }},
	{"RYW", "an old read of a revision", func(h *reliability.History) {
		h.Calls[6].Found = reliability.Version{Revision: 2, Value: 1}
	}},
	{"RYW", "an old list of a revision", func(h *reliability.History) { h.Lists[1].Least = 6 }},
	{"RYW", "a read that waits for long", func(h *reliability.History) { h.Calls[6].End = at(5000) }},
	{"REV-MONO", "a later write at an earlier revision", func(h *reliability.History) { h.Calls[2].Start, h.Calls[2].End = at(11), at(12) }},
	{"REV-MONO", "a list that went back", func(h *reliability.History) { h.Lists[0].Start, h.Lists[0].End = at(85), at(86) }},
	{"REV-MONO", "a stream that went back", func(h *reliability.History) { h.Pushes[2].At = at(40) }},
	{"REV-MONO", "an epoch without a reason", func(h *reliability.History) { h.Samples[0].Epochs = 1 }},
	{"WATCH-RELIABLE", "a list lacks a change", func(h *reliability.History) { h.Lists[1].Objects = nil }},
	{"WATCH-RELIABLE", "a proxy is sent an old value", func(h *reliability.History) { h.Pushes[2].Values[alone] = 3 }},
	{"WATCH-RELIABLE", "an event is missing", func(h *reliability.History) {
		h.Watches[0].Events = slices.Delete(h.Watches[0].Events, 1, 3)
	}},
	{"WATCH-ORD", "events change places", func(h *reliability.History) {
		e := h.Watches[0].Events
		e[0], e[1] = e[1], e[0]
	}},
	{"WATCH-UNIQUE", "an event comes twice", func(h *reliability.History) {
		h.Watches[0].Events = slices.Insert(h.Watches[0].Events, 1, h.Watches[0].Events[0])
	}},
	{"WATCH-ATOMIC", "one of two of a revision does not come", func(h *reliability.History) {
		addEvent(h, reliability.Event{Revision: 6, Key: alone + "2", Value: 8})
		h.Calls[8].Writes = append(h.Calls[8].Writes, reliability.Write{Key: alone + "2", Verb: reliability.Put, Value: 8})
	}},
	{"WATCH-RESUMABLE", "a watch begins too late", func(h *reliability.History) {
		h.Watches[1].From, h.Watches[1].Events = 2, []reliability.Delivery{{Type: reliability.Deleted, Key: alone, Revision: 6}}
	}},
	{"WATCH-BOOKMARK", "an event comes after its bookmark", func(h *reliability.History) {
		h.Watches[0].Events[2].Revision = 6
	}},
	{"RELIST-EQ", "a list left something in the cache", func(h *reliability.History) {
		h.Listed = append(h.Listed, reliability.Listed{Replica: "p0#1", After: 2, Revision: 5})
		h.Lists[1].Objects = held(left, 3, 2)
	}},
	{"WATCH-RELIABLE", "what passes a change over is not what a list found", func(h *reliability.History) {
		h.Listed = append(h.Listed, reliability.Listed{Replica: "p0#1", After: 4, Revision: 9})
		addEvent(h, reliability.Event{Revision: 7, Key: alone, Value: 70})
		addEvent(h, reliability.Event{Revision: 8, Key: alone, Value: 80})
		h.Watches[0].Events = append(h.Watches[0].Events[:2:2],
			reliability.Delivery{Type: reliability.Modified, Key: alone, Revision: 7, Value: 70},
			reliability.Delivery{Type: reliability.Modified, Key: alone, Revision: 8, Value: 80})
	}},
	{"RELIST-EQ", "a deletion comes twice", func(h *reliability.History) {
		h.Watches[0].Events = append(h.Watches[0].Events, reliability.Delivery{Type: reliability.Deleted, Key: alone, Revision: 7})
	}},
	{"RELIST-EQ", "a list brings a deletion of what never went", func(h *reliability.History) {
		h.Listed = append(h.Listed, reliability.Listed{Replica: "p0#1", After: 4, Revision: 5})
		h.Watches[0].Events = slices.Insert(h.Watches[0].Events, 2, reliability.Delivery{Type: reliability.Deleted, Key: alone, Revision: 4})
	}},
	{"CONVERGE", "a replica is never in step", func(h *reliability.History) { h.Settled[1].Error = "it waits" }},
	{"CONVERGE", "a replica takes long", func(h *reliability.History) { h.Settled[1].Took = at(5000) }},
	{"CONVERGE", "a replica has something else", func(h *reliability.History) { delete(h.Settled[1].Objects, left) }},
	{"CONVERGE", "two replicas send different things", func(h *reliability.History) { h.Settled[1].Resources = "other" }},
	{"FRESH", "more behind than it says", func(h *reliability.History) { h.Samples[0].Staleness = 0.1 }},
	{"STATIC-STAB", "a new proxy gets nothing", func(h *reliability.History) { h.Newcomers[0].Error = "it waits" }},
	{"STATIC-STAB", "a new proxy waits for long", func(h *reliability.History) { h.Newcomers[0].Took = at(5000) }},
	{"STATIC-STAB", "a write does not fail in time", func(h *reliability.History) { h.Calls[4].End = at(5000) }},
	{"BOUNDED", "goroutines are left", func(h *reliability.History) {
		h.Settled[0].Before, h.Settled[0].After = reliability.Sample{Goroutines: 100}, reliability.Sample{Goroutines: 500}
	}},
	{"SHUTDOWN", "a process does not end well", func(h *reliability.History) { h.Endings[0].Error = "exit status 1" }},
	{"SHUTDOWN", "a process takes long", func(h *reliability.History) { h.Endings[0].Took = at(20_000) }},
}

// addEvent adds an event to the truth.
func addEvent(h *reliability.History, e reliability.Event) {
	h.Truth = reliability.NewTruth(append(slices.Clone(h.Truth.Events), e))
}

// TestAListBringsManyRevisions: when a replica lists the whole store, a watcher may get events
// of several revisions. Deletions then have the revision before the list.
func TestAListBringsManyRevisions(t *testing.T) {
	t.Parallel()
	h := story()
	h.Listed = append(h.Listed, reliability.Listed{Replica: "p0#1", After: 4, Revision: 9})
	addEvent(h, reliability.Event{Revision: 7, Key: alone, Value: 70})
	addEvent(h, reliability.Event{Revision: 8, Key: alone + "2", Value: 80})
	h.Calls, h.Final, h.Settled = nil, nil, nil
	h.Watches = h.Watches[:1]
	h.Watches[0].Events = append(h.Watches[0].Events[:2:2],
		reliability.Delivery{Type: reliability.Deleted, Key: alone, Revision: 4, Value: 3},
		reliability.Delivery{Type: reliability.Added, Key: alone, Revision: 7, Value: 70},
		reliability.Delivery{Type: reliability.Added, Key: alone + "2", Revision: 8, Value: 80},
		reliability.Delivery{Type: reliability.Bookmark, Revision: 9})
	if got := reliability.Watches(h); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// TestAnEmptyHistoryProvesNothing: Unseen names what a history lacks.
func TestAnEmptyHistoryProvesNothing(t *testing.T) {
	t.Parallel()
	h := &reliability.History{}
	if got := reliability.Judge(h); len(got) > 0 {
		t.Errorf("%v", got)
	}
	if got := reliability.Unseen(h); len(got) != 12 {
		t.Errorf("%d things are unseen: %q", len(got), got)
	}
}
