package progress

import (
	"slices"
	"testing"
)

// TestRanges: Ranges may forget that an old revision changed nothing, but never that one
// changed something.
func TestRanges(t *testing.T) {
	t.Parallel()
	var s Ranges
	changed := map[int64]bool{}
	for r := int64(0); r < 200; r += 4 {
		before := slices.Clone(s)
		next := s.with(Range{r, r + 2})
		if !slices.Equal(s, before) {
			t.Fatal("ranges were modified")
		}
		s, changed[r+1], changed[r+2] = next, true, true
	}
	if len(s) != maxRanges {
		t.Errorf("%d ranges", len(s))
	}
	for r := range int64(200) {
		if changed[r] && !s.has(r) {
			t.Errorf("revision %d is forgotten", r)
		}
		if recent := r > 200-4*(maxRanges-1); recent && !changed[r] && s.has(r) {
			t.Errorf("revision %d changed nothing", r)
		}
	}
	if joined := (Ranges{}).with(Range{0, 5}).with(Range{5, 7}); len(joined) != 1 || joined[0] != (Range{0, 7}) {
		t.Errorf("neighbours: %v", joined)
	}
	for _, c := range []struct {
		one  Range
		want Ranges
	}{
		{Range{5, 6}, Ranges{{1, 3}, {4, 8}}},
		{Range{12, 14}, Ranges{{1, 3}, {4, 8}, {12, 14}}},
		{Range{7, 10}, Ranges{{1, 3}, {4, 10}}},
		{Range{2, 10}, Ranges{{1, 10}}},
		{Range{0, 10}, Ranges{{0, 10}}},
	} {
		before := Ranges{{1, 3}, {4, 8}}
		got := before.including(c.one)
		if !slices.Equal(got, c.want) || !got.contain(c.one) || !slices.Equal(before, Ranges{{1, 3}, {4, 8}}) {
			t.Errorf("including %v: %v, want %v", c.one, got, c.want)
		}
	}
	if (Ranges{{1, 3}, {4, 8}}).contain(Range{2, 6}) {
		t.Error("one that lies in two is contained in neither")
	}
	for revision, want := range map[int64]int64{3: 0, 4: 0, 5: 5, 6: 6, 8: 6, 11: 11, 20: 12} {
		if got := (Ranges{{4, 6}, {10, 12}}).upTo(revision); got != want {
			t.Errorf("up to %d: %d, want %d", revision, got, want)
		}
	}
}
