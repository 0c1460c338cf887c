package reliability

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// step is an operation on one key, as the model of it sees it.
type step struct {
	kind stepKind
	// given is what the stored version must be, or for a lost race must not be.
	given int64
	// made is what the step leaves behind, or what a read found.
	made Version
}

type stepKind int

const (
	writes      stepKind = iota // makes the object made, where given holds
	creates                     // the same where there is none
	changes                     // the same where there is one
	removes                     // deletes at made.Revision, 0 is not known
	mayRemove                   // deletes, or not
	reads                       // finds made
	loses                       // finds another version than given
	findsOne                    // finds that there is an object
	findsNobody                 // finds that there is none
)

// register is the state of one key. last is the revision of its last change.
type register struct {
	now  Version
	last int64
}

// Linearizable checks that the calls on each key could have happened one after
// the other, each at a moment between its start and its end: CAS-LIN.
func Linearizable(h *History) []Violation {
	var out report
	limit := h.Promises.Linear
	if limit <= 0 {
		limit = 30 * time.Second
	}
	for key, operations := range operationsOf(h) {
		switch porcupine.CheckOperationsTimeout(model(), operations, limit) {
		case porcupine.Illegal:
			out.add("CAS-LIN", "%s: %d calls cannot be put in an order: %s", key, len(operations), firstFault(operations))
		case porcupine.Unknown:
			out.add("CAS-LIN", "%s: %d calls could not be judged in %s: write fewer of them to one key", key, len(operations), limit)
		}
	}
	slices.SortFunc(out, func(a, b Violation) int {
		if a.Text < b.Text {
			return -1
		}
		return 1
	})
	return out
}

// firstFault is about where the history of a key ceases to be linearizable: the
// shortest beginning of it that is not.
func firstFault(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
	low, high := 0, len(operations)
	for low < high {
		middle := (low + high) / 2
		if porcupine.CheckOperationsTimeout(model(), operations[:middle+1], time.Second) == porcupine.Ok {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(operations) {
		return "no call in particular"
	}
	return "the first that does not fit is " + operations[low].Metadata.(Call).String()
}

// operationsOf are the calls of each key. A write whose outcome its caller does
// not know is one that may happen any time after its start; whether it did, the
// truth tells by its value, but for deletions.
func operationsOf(h *History) map[Key][]porcupine.Operation {
	out := map[Key][]porcupine.Operation{}
	unclaimed := unclaimedDeletions(h)
	for _, c := range h.Calls {
		add := func(key Key, s step, end time.Duration) {
			out[key] = append(out[key], porcupine.Operation{
				ClientId: c.Client, Input: s, Call: int64(c.Start), Return: int64(end), Metadata: c,
			})
		}
		if len(c.Writes) == 0 {
			if c.Consistent && (c.Class == OK || c.Class == NotFound) {
				add(c.Key, step{kind: reads, made: c.Found}, c.End)
			}
			continue
		}
		for _, w := range c.Writes {
			if s, end, ok := stepOf(h, c, w, unclaimed); ok {
				add(w.Key, s, end)
			}
		}
	}
	return out
}

// stepOf is what a write of a call is to its key, false where it is nothing.
func stepOf(h *History, c Call, w Write, unclaimed map[Key]int) (s step, end time.Duration, ok bool) {
	made := Version{Revision: c.Revision, Value: w.Value}
	switch {
	case c.Class == OK && w.Unchanged:
		return step{kind: reads, made: h.Truth.At(w.Key, c.Revision)}, c.End, true
	case c.Class == OK:
		return step{kind: kindOf(w.Verb), given: w.Given, made: made}, c.End, true
	case c.Class == Unknown && c.Same:
		return step{}, 0, false
	case c.Class == Unknown && w.Verb == Delete:
		return step{kind: mayRemove, given: w.Given}, math.MaxInt64, unclaimed[w.Key] > 0
	case c.Class == Unknown:
		landed := h.Truth.revisionsOf(w.Key, w.Value)
		if len(landed) == 0 {
			return step{}, 0, false
		}
		made.Revision = landed[0]
		return step{kind: kindOf(w.Verb), given: w.Given, made: made}, math.MaxInt64, true
	case len(c.Writes) > 1:
		return step{}, 0, false // which of them was at fault is not said
	case c.Class == Conflict && w.Given != 0:
		return step{kind: loses, given: w.Given}, c.End, true
	case c.Class == Exists:
		return step{kind: findsOne}, c.End, true
	case c.Class == NotFound:
		return step{kind: findsNobody}, c.End, true
	}
	return step{}, 0, false
}

func kindOf(v Verb) stepKind {
	switch v {
	case Create:
		return creates
	case Update:
		return changes
	case Delete:
		return removes
	}
	return writes
}

// unclaimedDeletions counts the deletions of each key that no caller was told
// of.
func unclaimedDeletions(h *History) map[Key]int {
	out := map[Key]int{}
	for _, e := range h.Truth.Events {
		if e.Value == 0 {
			out[e.Key]++
		}
	}
	for _, c := range h.Calls {
		for _, w := range c.Writes {
			if w.Verb == Delete && c.Class == OK && !w.Unchanged {
				out[w.Key]--
			}
		}
	}
	return out
}

// model is a register whose every change has a revision greater than the last.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{register{}} },
		Step: func(state, input, _ any) []any { return next(state.(register), input.(step)) },
	}
	return m.ToModel()
}

func next(r register, s step) []any {
	exists := r.now.Value != 0
	holds := s.given == 0 || (exists && r.now.Revision == s.given)
	if s.made.Revision != 0 && s.kind != reads && s.made.Revision <= r.last {
		return nil
	}
	var fits bool
	after := r
	switch s.kind {
	case writes, creates, changes:
		fits = holds && (s.kind != creates || !exists) && (s.kind != changes || exists)
		after = register{s.made, s.made.Revision}
	case removes:
		fits = holds && exists
		after = register{last: s.made.Revision}
	case mayRemove:
		if holds && exists {
			return []any{r, register{last: r.last}}
		}
		fits = true
	case reads:
		fits = r.now == s.made
	case loses:
		fits = exists && r.now.Revision != s.given
	case findsOne:
		fits = exists
	case findsNobody:
		fits = !exists
	}
	if !fits {
		return nil
	}
	return []any{after}
}
