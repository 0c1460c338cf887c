package pmap_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/pmap"
)

// TestSetAllIsSetOneByOne: for existing keys and for new ones. If no value changes, the
// result is the same map.
func TestSetAllIsSetOneByOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.MapOf(keys(), rapid.IntRange(0, 3)).Draw(t, "before")
		changes := rapid.MapOf(keys(), rapid.IntRange(0, 3)).Draw(t, "changes")
		var from pmap.Map[int]
		for key, value := range before {
			from = from.Set(key, value)
		}
		var entries []pmap.Entry[int]
		want := from
		for _, key := range slices.Sorted(maps.Keys(changes)) {
			entries = append(entries, pmap.Entry[int]{Key: key, Value: changes[key]})
			want = want.Set(key, changes[key])
		}
		got := from.SetAll(entries)
		if !maps.Equal(collect(got), collect(want)) || got.Len() != want.Len() {
			t.Fatalf("got %v, want %v", collect(got), collect(want))
		}
		checkDiff(t, from, got, collect(from), collect(got))
		if len(entries) > 0 && maps.Equal(collect(from), collect(got)) && got != from {
			t.Fatalf("setting what is there makes another map")
		}
	})
}

// BenchmarkSetMany sets three quarters of a map, one by one and all at once.
func BenchmarkSetMany(b *testing.B) {
	from := numbered(4000)
	var entries []pmap.Entry[int]
	for key, value := range from.All() {
		if value%4 != 0 {
			entries = append(entries, pmap.Entry[int]{Key: key, Value: -value})
		}
	}
	b.Run("one by one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m := from
			for _, e := range entries {
				m = m.Set(e.Key, e.Value)
			}
		}
	})
	b.Run("all at once", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			from.SetAll(entries)
		}
	})
}
