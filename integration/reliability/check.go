package reliability

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Violation is a broken promise.
type Violation struct {
	// Invariant is the name of the promise, such as CAS-LIN.
	Invariant string `json:"invariant"`
	Text      string `json:"text"`
}

// String is the violation in one line.
func (v Violation) String() string { return v.Invariant + ": " + v.Text }

// Checker checks a history for some invariants.
type Checker struct {
	// Invariants are the names of the invariants that it may report.
	Invariants []string
	Check      func(*History) []Violation
}

// Checkers returns all checkers.
func Checkers() []Checker {
	return []Checker{
		{[]string{"CAS-LIN"}, Linearizable},
		{[]string{"AMBIG", "DURABLE", "TXN-ALL"}, Outcomes},
		{[]string{"DURABLE"}, Kept},
		{[]string{"NOOP"}, Unchanged},
		{[]string{"RYW"}, ReadYourWrites},
		{[]string{"REV-MONO"}, Monotone},
		{[]string{"RELIST-EQ", "WATCH-RELIABLE"}, Snapshots},
		{[]string{"TXN-ALL"}, Batches},
		{[]string{"WATCH-ORD", "WATCH-UNIQUE", "WATCH-RELIABLE", "WATCH-ATOMIC", "WATCH-RESUMABLE", "WATCH-BOOKMARK", "RELIST-EQ"}, Watches},
		{[]string{"CONVERGE"}, Converged},
		{[]string{"FRESH"}, Fresh},
		{[]string{"STATIC-STAB"}, Stable},
		{[]string{"BOUNDED"}, Bounded},
		{[]string{"SHUTDOWN"}, ShutDown},
	}
}

// Judge returns what all checkers find, after it replaced versions made by statuses
// (AsWritten).
func Judge(h *History) (out []Violation) {
	h = h.AsWritten()
	for _, c := range Checkers() {
		out = append(out, c.Check(h)...)
	}
	return out
}

// Names returns the names of all invariants, in order.
func Names() []string {
	names := map[string]bool{}
	for _, c := range Checkers() {
		for _, name := range c.Invariants {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// report collects violations.
type report []Violation

func (r *report) add(invariant, format string, args ...any) {
	*r = append(*r, Violation{invariant, fmt.Sprintf(format, args...)})
}

// String describes a call.
func (c Call) String() string {
	var what []string
	for _, w := range c.Writes {
		text := fmt.Sprintf("%s %s=%d", w.Verb, w.Key, w.Value)
		if w.Given != 0 {
			text += fmt.Sprintf(" if at %d", w.Given)
		}
		what = append(what, text)
	}
	if len(c.Writes) == 0 {
		what = append(what, fmt.Sprintf("get %s (consistent %v, least %d) found %+v", c.Key, c.Consistent, c.Least, c.Found))
	}
	text := fmt.Sprintf("[%v-%v] client %d at %s: %s: %s at %d", c.Start.Round(1e6), c.End.Round(1e6), c.Client, c.Replica,
		strings.Join(what, ", "), c.Class, c.Revision)
	if c.Error != "" {
		text += " (" + c.Error + ")"
	}
	return text
}

// differences returns the keys at which two states differ, in order.
func differences(a, b map[Key]Version) (out []Key) {
	for key, v := range a {
		if b[key] != v {
			out = append(out, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
