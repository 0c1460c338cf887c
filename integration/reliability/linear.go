package reliability

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// step is an operation on one key in the model.
type step struct {
	kind stepKind
	// given is what the stored version must be; for a lost race, what it must not be.
	given int64
	// made is the version after the step, or the version that a read found.
	made Version
}

type stepKind int

const (
	writes      stepKind = iota // sets made if given holds
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

// Linearizable checks CAS-LIN: the calls on each key can be ordered so that each takes effect
// at a moment between its start and its end.
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

// firstFault describes where the history of a key stops being linearizable: the last call of
// the shortest prefix that is not.
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

// operationsOf returns the operations on each key. A write with an unknown outcome may take
// effect at any time after its start. Whether it did is known from the truth by its value,
// except for deletions.
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

// stepOf returns the step of a write on its key, false if the write has no effect or an unknown
// one.
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
		return step{}, 0, false // the answer does not say which write was at fault
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

// unclaimedDeletions counts, for each key, the deletions that no call acknowledged.
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

// model is a register. Every change has a greater revision than the one before.
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
