package reliability

import "time"

// Outcomes compares the outcomes of writes with the truth. An acknowledged write is there
// (DURABLE), once, and at the revision in the answer. A refused write is not there (AMBIG). The
// objects of one call are written at one revision, or not at all (TXN-ALL).
func Outcomes(h *History) []Violation {
	var out report
	known := map[Key]map[int64]bool{}
	for _, c := range h.Calls {
		for _, w := range c.Writes {
			if known[w.Key] == nil {
				known[w.Key] = map[int64]bool{}
			}
			known[w.Key][w.Value] = true
		}
		judgeOutcome(h, c, &out)
	}
	count := map[Event]int{}
	for _, e := range h.Truth.Events {
		if e.Value == 0 {
			continue
		}
		if !known[e.Key][e.Value] {
			out.add("AMBIG", "%s=%d at %d was written by nobody", e.Key, e.Value, e.Revision)
		}
		if count[Event{Key: e.Key, Value: e.Value}]++; count[Event{Key: e.Key, Value: e.Value}] == 2 {
			out.add("AMBIG", "%s=%d was written again at %d: one call was done twice", e.Key, e.Value, e.Revision)
		}
	}
	return out
}

func judgeOutcome(h *History, c Call, out *report) {
	landed := map[int64]int{} // number of objects by revision, 0 for missing ones
	for _, w := range c.Writes {
		if w.Verb == Delete {
			if c.Class == OK && !w.Unchanged {
				if e := h.Truth.Last(w.Key, c.Revision); e.Revision != c.Revision || e.Value != 0 {
					out.add("DURABLE", "acknowledged, and there is no such deletion: %s", c)
				}
			}
			continue
		}
		at := h.Truth.revisionsOf(w.Key, w.Value)
		if len(at) > 0 {
			landed[at[0]]++
		} else {
			landed[0]++
		}
		switch {
		case c.Same || w.Unchanged:
		case c.Class == OK && len(at) == 0:
			out.add("DURABLE", "acknowledged, and not there: %s", c)
		case c.Class == OK && at[0] != c.Revision:
			out.add("AMBIG", "acknowledged at another revision than the one that has it, %d: %s", at[0], c)
		case c.Class != OK && c.Class != Unknown && len(at) > 0:
			out.add("AMBIG", "said not to be done, and done at %d: %s", at[0], c)
		}
	}
	if len(landed) > 1 && !c.Same {
		out.add("TXN-ALL", "one call came to more than one revision, or in part, %v: %s", landed, c)
	}
}

// Kept checks DURABLE: the final content of the store is what the truth adds up to.
func Kept(h *History) []Violation {
	var out report
	if h.Final == nil {
		return nil
	}
	want := h.Truth.In("", 1<<62)
	for _, key := range differences(h.Final, want) {
		out.add("DURABLE", "in the end the store has %s at %+v, and it was %+v", key, h.Final[key], want[key])
	}
	return out
}

// Unchanged checks NOOP: a write of what is already there makes no revision.
func Unchanged(h *History) []Violation {
	var out report
	for _, c := range h.Calls {
		if !c.Same || c.Class != OK {
			continue
		}
		for _, w := range c.Writes {
			if !w.Unchanged {
				out.add("NOOP", "%s was the same, and is not said to be unchanged: %s", w.Key, c)
			}
		}
	}
	return out
}

// ReadYourWrites checks RYW: a read with a least revision shows that or newer content, or fails
// in time.
func ReadYourWrites(h *History) []Violation {
	var out report
	for _, c := range h.Calls {
		if len(c.Writes) > 0 || c.Least == 0 {
			continue
		}
		if took := c.End - c.Start; h.Promises.Wait > 0 && took > h.Promises.Wait && c.Class != Unknown {
			out.add("RYW", "took %s: %s", took.Round(time.Millisecond), c)
		}
		if (c.Class == OK || c.Class == NotFound) && !heldSince(h.Truth, c.Key, c.Found, c.Least) {
			out.add("RYW", "older than what was asked for; the store had %+v then: %s", h.Truth.At(c.Key, c.Least), c)
		}
	}
	for _, l := range h.Lists {
		if l.Revision < l.Least {
			out.add("RYW", "a list of %s by %s is of revision %d, and %d was asked for", l.Scope, l.Replica, l.Revision, l.Least)
		}
	}
	return out
}

// heldSince reports whether a key had the version found at a revision or later.
func heldSince(t Truth, key Key, found Version, revision int64) bool {
	if t.At(key, revision) == found {
		return true
	}
	for _, e := range t.Between(key, revision, 1<<62) {
		if (e.Value == 0 && found == Version{}) || (e.Value != 0 && found == Version{e.Revision, e.Value}) {
			return true
		}
	}
	return false
}
