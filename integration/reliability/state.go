package reliability

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Converged checks CONVERGE: soon after the last fault every replica equals the store, and all
// replicas send a proxy the same.
func Converged(h *History) []Violation {
	var out report
	for i, s := range h.Settled {
		if s.Error != "" {
			out.add("CONVERGE", "%s is not in step: %s", s.Replica, s.Error)
			continue
		}
		if s.Took > h.Promises.Converge {
			out.add("CONVERGE", "%s took %s to be in step", s.Replica, s.Took.Round(time.Millisecond))
		}
		want := h.Truth.In("", s.Revision)
		for _, key := range differences(s.Objects, want) {
			out.add("CONVERGE", "%s shows %s at %+v, and the store has %+v", s.Replica, key, s.Objects[key], want[key])
		}
		if first := h.Settled[0]; i > 0 && first.Error == "" && s.Resources != first.Resources {
			out.add("CONVERGE", "%s and %s send a proxy not the same", first.Replica, s.Replica)
		}
	}
	return out
}

// measurement is how far apart the two readings of a sample may be, in seconds.
const measurement = 0.25

// Fresh checks FRESH: a replica is never further behind than it reports.
func Fresh(h *History) []Violation {
	type told struct {
		at       time.Duration
		revision int64
	}
	var writes []told // with the greatest acknowledged revision so far
	for _, c := range h.Calls {
		if len(c.Writes) > 0 && c.Class == OK && !c.Same && !c.Writes[0].Unchanged {
			writes = append(writes, told{c.End, c.Revision})
		}
	}
	slices.SortFunc(writes, func(a, b told) int { return cmp.Compare(a.at, b.at) })
	var out report
	for _, s := range h.Samples {
		if s.Revision == 0 {
			continue // it has read nothing yet, and reports that it is not ready
		}
		for _, w := range writes {
			if w.at >= s.Start {
				break
			}
			if behind := (s.Start - w.at).Seconds(); w.revision > s.Revision && behind > s.Staleness+measurement {
				out.add("FRESH", "%s said at %s that it is at most %.3f s behind, and revision %d, which it did not have at %d, was acknowledged %.3f s before",
					s.Replica, s.Start.Round(time.Millisecond), s.Staleness, w.revision, s.Revision, behind)
				break
			}
		}
	}
	return out
}

// Stable checks STATIC-STAB: whatever happens to the store, new proxies get their
// configuration, and writes fail in time.
func Stable(h *History) []Violation {
	var out report
	for _, n := range h.Newcomers {
		switch {
		case n.Error != "":
			out.add("STATIC-STAB", "a new proxy at %s was not configured at %s: %s", n.Replica, n.Start.Round(time.Millisecond), n.Error)
		case n.Took > h.Promises.Newcomer:
			out.add("STATIC-STAB", "a new proxy at %s waited %s for its configuration", n.Replica, n.Took.Round(time.Millisecond))
		}
	}
	for _, c := range h.Calls {
		if took := c.End - c.Start; len(c.Writes) > 0 && took > h.Promises.Fail {
			out.add("STATIC-STAB", "a write took %s: %s", took.Round(time.Millisecond), c)
		}
	}
	return out
}

// How much more a replica may use after faults than before: for what it has learnt, and what
// its runtime has not freed.
const (
	moreGoroutines = 40
	moreFiles      = 24
	moreResident   = 128 << 20
)

// Bounded checks BOUNDED: a replica uses no more of the machine after faults than before.
func Bounded(h *History) []Violation {
	var out report
	for _, s := range h.Settled {
		if s.Before.Goroutines == 0 || s.After.Goroutines == 0 {
			continue
		}
		if s.After.Goroutines > s.Before.Goroutines+moreGoroutines {
			out.add("BOUNDED", "%s has %d goroutines, and had %d", s.Replica, s.After.Goroutines, s.Before.Goroutines)
		}
		if s.After.Files > s.Before.Files+moreFiles {
			out.add("BOUNDED", "%s has %d files open, and had %d", s.Replica, s.After.Files, s.Before.Files)
		}
		if s.After.Resident > 2*s.Before.Resident+moreResident {
			out.add("BOUNDED", "%s takes %d MiB, and took %d", s.Replica, s.After.Resident>>20, s.Before.Resident>>20)
		}
	}
	return out
}

// ShutDown checks SHUTDOWN: every process that was told to end did, in time and as documented.
func ShutDown(h *History) []Violation {
	var out report
	for _, e := range h.Endings {
		if e.Error != "" {
			out.add("SHUTDOWN", "%s: %s", e.Process, e.Error)
		} else if e.Took > h.Promises.End {
			out.add("SHUTDOWN", "%s took %s", e.Process, e.Took.Round(time.Millisecond))
		}
	}
	return out
}

// Summary counts the content of a history.
type Summary struct {
	Calls, Acknowledged, Unknown, Lists, Events, Statuses, Pushes int
	// Settled is how long the slowest replica took to be in sync.
	Settled time.Duration
	// Harm are the names of the faults, in order.
	Harm []string
}

// Summarize counts.
func Summarize(h *History) Summary {
	s := Summary{Calls: len(h.Calls) + len(h.Lists), Lists: len(h.Lists), Pushes: len(h.Pushes)}
	for _, c := range h.Calls {
		switch {
		case len(c.Writes) == 0:
		case c.Class == OK:
			s.Acknowledged++
		case c.Class == Unknown:
			s.Unknown++
		}
	}
	for _, w := range h.Watches {
		s.Events += len(w.Events)
	}
	for _, revisions := range h.Said {
		s.Statuses += len(revisions)
	}
	for _, r := range h.Settled {
		s.Settled = max(s.Settled, r.Took)
	}
	for _, harm := range h.Harm {
		s.Harm = append(s.Harm, harm.Name)
	}
	return s
}

// Unseen lists what a history lacks to prove anything.
func Unseen(h *History) (out []string) {
	told, read, carried := 0, 0, map[string]int{}
	for _, w := range h.Watches {
		told += len(w.Events)
	}
	for _, c := range h.Calls {
		if len(c.Writes) == 0 && c.Consistent && c.Class == OK {
			read++
		}
	}
	for _, p := range h.Pushes {
		carried[p.Type] += len(p.Values)
	}
	for what, n := range map[string]int{
		"events of the truth": len(h.Truth.Events), "acknowledged writes": Summarize(h).Acknowledged, "consistent reads": read,
		"lists": len(h.Lists), "events of watches": told, "new proxies": len(h.Newcomers), "samples": len(h.Samples),
		"values in clusters": carried["Cluster"], "values in endpoints": carried["ClusterLoadAssignment"],
		"values in routes": carried["RouteConfiguration"], "replicas in the end": len(h.Settled), "objects in the end": len(h.Final),
	} {
		if n == 0 {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return out
}

// Broken returns the broken invariants, in order.
func Broken(violations []Violation) []string {
	names := map[string]bool{}
	for _, v := range violations {
		names[v.Invariant] = true
	}
	return slices.Sorted(maps.Keys(names))
}
