package xds

import "slices"

// span are the revisions after from, up to and including to.
type span struct{ from, to int64 }

func (s span) has(revision int64) bool { return s.from < revision && revision <= s.to }

// spans are those revisions, in order, at which something changed for a proxy.
// They are never modified. There are at most maxSpans: of older revisions it is
// not remembered which changed nothing.
type spans []span

const maxSpans = 16

// with returns the spans and one that follows them.
func (s spans) with(next span) spans {
	out := make(spans, 0, min(len(s)+1, maxSpans))
	if len(s) == maxSpans {
		out, s = append(out, span{s[0].from, s[1].to}), s[2:]
	}
	out = append(out, s...)
	if n := len(out); n > 0 && out[n-1].to == next.from {
		out[n-1].to = next.to
		return out
	}
	return append(out, next)
}

// including returns the spans and one that may begin before their end.
func (s spans) including(one span) spans {
	for len(s) > 0 && s[len(s)-1].to >= one.from {
		last := s[len(s)-1]
		one = span{min(one.from, last.from), max(one.to, last.to)}
		s = s[:len(s)-1]
	}
	return s.with(one)
}

// covers says whether one is among the spans.
func (s spans) covers(one span) bool {
	return slices.ContainsFunc(s, func(o span) bool { return o.from <= one.from && one.to <= o.to })
}

// has says whether something changed at a revision.
func (s spans) has(revision int64) bool {
	for _, one := range s {
		if one.has(revision) {
			return true
		}
	}
	return false
}

// upTo is the revision that has to be reached to have all that changed at or
// before another, 0 where nothing did.
func (s spans) upTo(revision int64) int64 {
	var reach int64
	for _, one := range s {
		if one.from < revision {
			reach = min(one.to, revision)
		}
	}
	return reach
}
