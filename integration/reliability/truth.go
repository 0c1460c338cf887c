package reliability

import (
	"maps"
	"slices"
	"sort"
	"strings"
)

// Event is one change of the store. A value of 0 is a deletion.
type Event struct {
	Revision int64 `json:"revision"`
	Key      Key   `json:"key"`
	Value    int64 `json:"value,omitempty"`
}

// Truth is the history of the store, in the order of revisions.
type Truth struct {
	Events []Event
	byKey  map[Key][]Event
}

// NewTruth makes a Truth of events, which must be in order.
func NewTruth(events []Event) Truth {
	t := Truth{Events: events, byKey: map[Key][]Event{}}
	for _, e := range events {
		t.byKey[e.Key] = append(t.byKey[e.Key], e)
	}
	return t
}

// Keys returns all keys that ever existed, in order.
func (t Truth) Keys() []Key { return slices.Sorted(maps.Keys(t.byKey)) }

// Of returns the events of a key.
func (t Truth) Of(key Key) []Event { return t.byKey[key] }

// Last returns the last event of a key up to a revision; the zero Event if there is none.
func (t Truth) Last(key Key, revision int64) Event {
	events := t.byKey[key]
	n := sort.Search(len(events), func(i int) bool { return events[i].Revision > revision })
	if n == 0 {
		return Event{}
	}
	return events[n-1]
}

// At returns the version of a key at a revision; the zero Version if there was no object.
func (t Truth) At(key Key, revision int64) Version {
	if e := t.Last(key, revision); e.Value != 0 {
		return Version{Revision: e.Revision, Value: e.Value}
	}
	return Version{}
}

// Between returns the events of a key after one revision and up to another.
func (t Truth) Between(key Key, after, upTo int64) []Event {
	events := t.byKey[key]
	from := sort.Search(len(events), func(i int) bool { return events[i].Revision > after })
	to := sort.Search(len(events), func(i int) bool { return events[i].Revision > upTo })
	return events[from:max(from, to)]
}

// In returns all objects of a scope, "Kind/namespace" or "" for all, at a revision.
func (t Truth) In(scope string, revision int64) map[Key]Version {
	out := map[Key]Version{}
	for key := range t.byKey {
		if !key.In(scope) {
			continue
		}
		if v := t.At(key, revision); v.Value != 0 {
			out[key] = v
		}
	}
	return out
}

// In reports whether a key is in a scope.
func (k Key) In(scope string) bool { return scope == "" || strings.HasPrefix(string(k), scope+"/") }

// revisionsOf returns the revisions at which a key got a value.
func (t Truth) revisionsOf(key Key, value int64) (out []int64) {
	for _, e := range t.byKey[key] {
		if e.Value == value {
			out = append(out, e.Revision)
		}
	}
	return out
}

// changedAt reports whether a key changed at a revision.
func (t Truth) changedAt(key Key, revision int64) bool {
	e := t.Last(key, revision)
	return e.Revision == revision && e.Key == key
}
