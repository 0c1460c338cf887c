package reliability

import (
	"cmp"
	"slices"
	"time"
)

// Snapshots checks that every list, and every response to a proxy, equals the store at its
// revision. A difference breaks RELIST-EQ if the replica learnt the key's last change by a list
// of the whole store, and WATCH-RELIABLE if by a watch.
func Snapshots(h *History) []Violation {
	var out report
	for _, l := range h.Lists {
		want := h.Truth.In(l.Scope, l.Revision)
		for _, key := range differences(l.Objects, want) {
			out.add(h.blame(l.Replica, key, l.Revision), "a list by %s at revision %d has %s at %+v, and the store had %+v",
				l.Replica, l.Revision, key, l.Objects[key], want[key])
		}
	}
	earlier := map[string][]int64{} // revisions of recent whole responses, by stream
	for _, p := range h.Pushes {
		var before int64
		if last := earlier[p.Stream]; len(last) > 0 {
			before = last[0]
		}
		for _, key := range p.wrong(h.Truth, before) {
			out.add(h.blame(p.Replica, key, p.Revision), "%s sent %s at revision %d with %s=%d (there: %v), and the store had %+v",
				p.Replica, p.Type, p.Revision, key, p.Values[key], slices.Contains(p.Present, key), h.Truth.At(key, p.Revision))
		}
		if p.Whole {
			last := append(earlier[p.Stream], p.Revision)
			earlier[p.Stream] = last[max(0, len(last)-removalRounds):]
		}
	}
	return out
}

// blame returns the invariant that a replica breaks if it shows a key wrongly. It depends on
// whether the last change came by a list or by the watch.
func (h *History) blame(replica string, key Key, revision int64) string {
	last := h.Truth.Last(key, revision).Revision
	for _, l := range h.Listed {
		if l.Replica == replica && l.After < last && last <= l.Revision && l.Revision <= revision {
			return "RELIST-EQ"
		}
	}
	return "WATCH-RELIABLE"
}

// removalRounds is how many whole responses may still have a deleted resource: proxies get
// removals last, and newer changes go first.
const removalRounds = 5

// wrong returns the keys that a response shows otherwise than at its revision. A whole response
// may still have objects that were deleted after the revision before.
func (p Push) wrong(t Truth, before int64) (out []Key) {
	for key, value := range p.Values {
		if t.At(key, p.Revision).Value != value {
			out = append(out, key)
		}
	}
	for _, key := range p.Present {
		goes := p.Whole && len(t.Between(key, min(before, p.Revision)-1, p.Revision)) > 0
		if t.At(key, p.Revision).Value == 0 && !goes {
			out = append(out, key)
		}
	}
	if p.Whole {
		for key := range t.In(p.Scope, p.Revision) {
			if !slices.Contains(p.Present, key) {
				out = append(out, key)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Batches checks TXN-ALL: in lists and in responses to proxies, objects that are always written
// together have one value at one revision.
func Batches(h *History) []Violation {
	together := groups(h)
	var out report
	for _, l := range h.Lists {
		seen := map[Key]int64{}
		for key, v := range l.Objects {
			seen[key] = v.Value
		}
		torn(h.Truth, together, seen, l.Revision, "a list by "+l.Replica, &out)
	}
	for _, p := range h.Pushes {
		torn(h.Truth, together, p.Values, p.Revision, p.Type+" sent by "+p.Replica, &out)
	}
	return out
}

// groups returns, for each key, the keys that are written together with it. A key that is also
// written alone has no group.
func groups(h *History) map[Key][]Key {
	out := map[Key][]Key{}
	for _, c := range h.Calls {
		if len(c.Writes) < 2 {
			continue
		}
		var keys []Key
		for _, w := range c.Writes {
			keys = append(keys, w.Key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			out[key] = keys
		}
	}
	for _, c := range h.Calls {
		if len(c.Writes) == 1 {
			delete(out, c.Writes[0].Key)
		}
	}
	return out
}

// torn reports a group if some of its objects are seen as before the batch of the revision, and
// others as after it.
func torn(t Truth, together map[Key][]Key, seen map[Key]int64, revision int64, where string, out *report) {
	for _, key := range slices.Sorted(keysOf(seen)) {
		group := together[key]
		if len(group) == 0 {
			continue
		}
		now := t.Last(key, revision)
		if seen[key] == now.Value {
			continue
		}
		// The object is outdated. If it is as before the batch of this very revision, the batch
		// was split.
		if before := t.Last(key, now.Revision-1); seen[key] == before.Value {
			out.add("TXN-ALL", "%s at revision %d has %s=%d, as it was before revision %d, which made it and %d others %d",
				where, revision, key, seen[key], now.Revision, len(group)-1, now.Value)
		}
	}
}

func keysOf(m map[Key]int64) func(yield func(Key) bool) {
	return func(yield func(Key) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// Monotone checks REV-MONO: revisions never go back. It compares the revisions of successive
// writes, of lists by one process, of responses on one stream, and those in the metrics of a
// process. No process may report that the store went back.
func Monotone(h *History) []Violation {
	var out report
	var writes []moment
	shown, epochs := map[string][]moment{}, map[string]int{}
	for _, c := range h.Calls {
		if len(c.Writes) > 0 && c.Class == OK && !c.Same && !c.Writes[0].Unchanged {
			writes = append(writes, moment{c.Start, c.End, c.Revision})
		}
	}
	for _, l := range h.Lists {
		shown["lists by "+l.Replica] = append(shown["lists by "+l.Replica], moment{l.Start, l.End, l.Revision})
	}
	for _, p := range h.Pushes {
		shown["stream "+p.Stream] = append(shown["stream "+p.Stream], moment{p.At, p.At, p.Revision})
	}
	for _, s := range h.Samples {
		shown["the metric of "+s.Replica] = append(shown["the metric of "+s.Replica], moment{s.Start, s.End, s.Revision})
		if s.Epochs > epochs[s.Replica] {
			epochs[s.Replica] = s.Epochs
			out.add("REV-MONO", "%s says at %s that the store went back, and it did not", s.Replica, s.Start.Round(time.Millisecond))
		}
	}
	goesBack("writes", writes, true, &out)
	for _, where := range sortedKeys(shown) {
		goesBack(where, shown[where], false, &out)
	}
	return out
}

// moment is a revision that was reported between two times.
type moment struct {
	start, end time.Duration
	revision   int64
}

// goesBack reports a revision that is smaller than one reported before its request began. With
// strict, it must not be equal either.
func goesBack(where string, told []moment, strict bool, out *report) {
	byEnd := slices.Clone(told)
	slices.SortStableFunc(byEnd, func(a, b moment) int { return cmp.Compare(a.end, b.end) })
	slices.SortStableFunc(told, func(a, b moment) int { return cmp.Compare(a.start, b.start) })
	var before moment
	for _, m := range told {
		for len(byEnd) > 0 && byEnd[0].end < m.start {
			if byEnd[0].revision > before.revision {
				before = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		if m.revision < before.revision || (strict && m.revision == before.revision) {
			out.add("REV-MONO", "%s: revision %d at %s after %d at %s", where, m.revision, m.start, before.revision, before.end)
		}
	}
}
