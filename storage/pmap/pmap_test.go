package pmap_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/pmap"
)

func collect(m pmap.Map[int]) map[string]int { return maps.Collect(m.All()) }

func keys() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-c]{0,3}(/[a-b]{0,2})?`)
}

func sorted(m map[string]int) func(func(string, int) bool) {
	return func(yield func(string, int) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// checkDiff compares Diff(from, to) with the difference of two Go maps.
func checkDiff(t interface{ Fatalf(string, ...any) }, from, to pmap.Map[int], a, b map[string]int) {
	var want []pmap.Change[int]
	union := maps.Clone(a)
	maps.Copy(union, b)
	for _, k := range slices.Sorted(maps.Keys(union)) {
		o, hasOld := a[k]
		n, hasNew := b[k]
		if hasOld != hasNew || o != n {
			want = append(want, pmap.Change[int]{Key: k, Old: o, New: n, HasOld: hasOld, HasNew: hasNew})
		}
	}
	if d := cmp.Diff(want, slices.Collect(pmap.Diff(from, to))); d != "" {
		t.Fatalf("diff (-want +got):\n%s", d)
	}
}

// checkFind compares Find(keys, in) with look-ups in a Go map.
func checkFind(t interface{ Fatalf(string, ...any) }, keys, in pmap.Map[int], a, b map[string]int) {
	var want, got []string
	for _, k := range slices.Sorted(maps.Keys(a)) {
		want = append(want, fmt.Sprint(k, "=", b[k]))
	}
	for k, v := range pmap.Find(keys, in) {
		got = append(got, fmt.Sprint(k, "=", v))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("find (-want +got):\n%s", d)
	}
}

// TestMapBehavesLikeAGoMap drives both through one random history and keeps
// every version, so that sharing cannot corrupt an older one.
func TestMapBehavesLikeAGoMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m pmap.Map[int]
		reference := map[string]int{}
		versions := []pmap.Map[int]{m}
		contents := []map[string]int{{}}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := keys().Draw(t, "key")
			if rapid.Bool().Draw(t, "delete") {
				m = m.Delete(key)
				delete(reference, key)
			} else {
				value := rapid.IntRange(0, 3).Draw(t, "value")
				m = m.Set(key, value)
				reference[key] = value
			}
			versions = append(versions, m)
			contents = append(contents, maps.Clone(reference))
		}
		for i, v := range versions {
			if d := cmp.Diff(contents[i], collect(v)); d != "" || v.Len() != len(contents[i]) {
				t.Fatalf("version %d, len %d (-want +got):\n%s", i, v.Len(), d)
			}
			if got := slices.Collect(v.Keys()); !slices.IsSorted(got) {
				t.Fatalf("version %d is out of order: %q", i, got)
			}
			for k := range reference {
				got, ok := v.Get(k)
				want, has := contents[i][k]
				if ok != has || got != want {
					t.Fatalf("version %d: Get(%q) = %d, %v", i, k, got, ok)
				}
			}
		}
		i := rapid.IntRange(0, len(versions)-1).Draw(t, "from")
		j := rapid.IntRange(0, len(versions)-1).Draw(t, "to")
		checkDiff(t, versions[i], versions[j], contents[i], contents[j])
		checkFind(t, versions[i], versions[j], contents[i], contents[j])
		built := pmap.FromSorted(sorted(contents[j]))
		checkDiff(t, versions[i], built, contents[i], contents[j])
		checkFind(t, versions[i], built, contents[i], contents[j])
		if !pmap.Equal(built, versions[j]) || built.Len() != versions[j].Len() {
			t.Fatalf("the built map differs from the grown one")
		}
	})
}

// FuzzMap reads a program of sets and deletes from bytes: two per step.
func FuzzMap(f *testing.F) {
	f.Add([]byte{1, 1, 2, 2, 1, 0, 200, 7})
	f.Fuzz(func(t *testing.T, program []byte) {
		var m, half pmap.Map[int]
		reference, halfContent := map[string]int{}, map[string]int{}
		for i := 0; i+1 < len(program); i += 2 {
			key, value := fmt.Sprintf("k/%d", program[i]), int(program[i+1]%4)
			if value == 0 {
				m = m.Delete(key)
				delete(reference, key)
			} else {
				m = m.Set(key, value)
				reference[key] = value
			}
			if i <= len(program)/2 {
				half, halfContent = m, maps.Clone(reference)
			}
		}
		if d := cmp.Diff(reference, collect(m)); d != "" {
			t.Fatalf("content (-want +got):\n%s", d)
		}
		checkDiff(t, half, m, halfContent, reference)
		checkFind(t, half, m, halfContent, reference)
		checkDiff(t, m, pmap.FromSorted(sorted(halfContent)), reference, halfContent)
		checkFind(t, m, pmap.FromSorted(sorted(halfContent)), reference, halfContent)
	})
}

func TestPrefixAndFrom(t *testing.T) {
	t.Parallel()
	m := pmap.FromSorted(sorted(map[string]int{"a": 1, "b/1": 2, "b/2": 3, "b0": 4, "c": 5}))
	if d := cmp.Diff(map[string]int{"b/1": 2, "b/2": 3}, maps.Collect(m.Prefix("b/"))); d != "" {
		t.Errorf("Prefix (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"b/2": 3, "b0": 4, "c": 5}, maps.Collect(m.From("b/15"))); d != "" {
		t.Errorf("From (-want +got):\n%s", d)
	}
}

func TestSettingTheSameValueSharesTheMap(t *testing.T) {
	t.Parallel()
	m := pmap.Map[int]{}.Set("a", 1).Set("b", 2)
	if m.Set("a", 1) != m || m.Delete("x") != m {
		t.Error("a change of nothing made a new map")
	}
}

func numbered(n int) pmap.Map[int] {
	return pmap.FromSorted(func(yield func(string, int) bool) {
		for i := range n {
			if !yield(fmt.Sprintf("key-%08d", i), i) {
				return
			}
		}
	})
}

// BenchmarkDiffOneChange shows that the cost follows the change: allocations
// grow with the depth of the tree, not with its size.
func BenchmarkDiffOneChange(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		from := numbered(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				to := from.Set(fmt.Sprintf("key-%08d", i%n), -1)
				for range pmap.Diff(from, to) {
				}
			}
		})
	}
}

func TestGroups(t *testing.T) {
	var groups pmap.Map[pmap.Map[int]]
	groups = pmap.Put(pmap.Put(pmap.Put(groups, "a", "x", 1), "a", "y", 2), "b", "x", 3)
	if groups.Len() != 2 || groups.Value("a").Value("y") != 2 || groups.Value("b").Len() != 1 {
		t.Fatalf("%v", groups)
	}
	groups = pmap.Remove(pmap.Remove(groups, "a", "x"), "b", "x")
	if _, left := groups.Get("b"); left || groups.Value("a").Len() != 1 {
		t.Errorf("a group outlives its last member, or goes with another: %v", groups)
	}
	if pmap.Remove(groups, "none", "x") != groups {
		t.Error("what is not there was removed")
	}
}
