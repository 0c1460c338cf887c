package progress

import "slices"

// Range holds the revisions after From, up to and including To. The zero Range is
// empty.
type Range struct{ From, To int64 }

func (r Range) has(revision int64) bool { return r.From < revision && revision <= r.To }

// Ranges are the revisions, in order, at which something changed for a proxy. They are
// never modified. There are at most maxRanges: the oldest are merged.
type Ranges []Range

const maxRanges = 16

// with returns the ranges and one that follows them.
func (s Ranges) with(next Range) Ranges {
	out := make(Ranges, 0, min(len(s)+1, maxRanges))
	if len(s) == maxRanges {
		out, s = append(out, Range{s[0].From, s[1].To}), s[2:]
	}
	out = append(out, s...)
	if n := len(out); n > 0 && out[n-1].To == next.From {
		out[n-1].To = next.To
		return out
	}
	return append(out, next)
}

// including returns the ranges joined with one that may begin before their end.
func (s Ranges) including(one Range) Ranges {
	for len(s) > 0 && s[len(s)-1].To >= one.From {
		last := s[len(s)-1]
		one = Range{min(one.From, last.From), max(one.To, last.To)}
		s = s[:len(s)-1]
	}
	return s.with(one)
}

func (s Ranges) contain(one Range) bool {
	return slices.ContainsFunc(s, func(o Range) bool { return o.From <= one.From && one.To <= o.To })
}

// has says whether something changed at a revision.
func (s Ranges) has(revision int64) bool {
	return slices.ContainsFunc(s, func(one Range) bool { return one.has(revision) })
}

// upTo returns the revision that a proxy must acknowledge to have all changes up to
// another revision; 0 if there are none.
func (s Ranges) upTo(revision int64) int64 {
	var reach int64
	for _, one := range s {
		if one.From < revision {
			reach = min(one.To, revision)
		}
	}
	return reach
}
