package xds

import (
	"slices"
	"testing"
)

// TestSpans: of old revisions it is forgotten which changed nothing, and never
// that one changed something.
func TestSpans(t *testing.T) {
	t.Parallel()
	var s spans
	changed := map[int64]bool{}
	for r := int64(0); r < 200; r += 4 {
		before := slices.Clone(s)
		next := s.with(span{r, r + 2})
		if !slices.Equal(s, before) {
			t.Fatal("spans were modified")
		}
		s, changed[r+1], changed[r+2] = next, true, true
	}
	if len(s) != maxSpans {
		t.Errorf("%d spans", len(s))
	}
	for r := range int64(200) {
		if changed[r] && !s.has(r) {
			t.Errorf("revision %d is forgotten", r)
		}
		if recent := r > 200-4*(maxSpans-1); recent && !changed[r] && s.has(r) {
			t.Errorf("revision %d changed nothing", r)
		}
	}
	if joined := (spans{}).with(span{0, 5}).with(span{5, 7}); len(joined) != 1 || joined[0] != (span{0, 7}) {
		t.Errorf("neighbours: %v", joined)
	}
	for _, c := range []struct {
		one  span
		want spans
	}{
		{span{5, 6}, spans{{1, 3}, {4, 8}}},
		{span{12, 14}, spans{{1, 3}, {4, 8}, {12, 14}}},
		{span{7, 10}, spans{{1, 3}, {4, 10}}},
		{span{2, 10}, spans{{1, 10}}},
		{span{0, 10}, spans{{0, 10}}},
	} {
		before := spans{{1, 3}, {4, 8}}
		got := before.including(c.one)
		if !slices.Equal(got, c.want) || !got.covers(c.one) || !slices.Equal(before, spans{{1, 3}, {4, 8}}) {
			t.Errorf("including %v: %v, want %v", c.one, got, c.want)
		}
	}
	if (spans{{1, 3}, {4, 8}}).covers(span{2, 6}) {
		t.Error("one that lies in two is covered by neither")
	}
	for revision, want := range map[int64]int64{3: 0, 4: 0, 5: 5, 6: 6, 8: 6, 11: 11, 20: 12} {
		if got := (spans{{4, 6}, {10, 12}}).upTo(revision); got != want {
			t.Errorf("up to %d: %d, want %d", revision, got, want)
		}
	}
}
