package nameset_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
)

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("outbound|80||service-%05d", i)
	}
	return out
}

// TestSetsBehaveLikeGoMaps drives sets, of a table and of none, through one
// random history.
func TestSetsBehaveLikeGoMaps(t *testing.T) {
	t.Parallel()
	for what, table := range map[string]*nameset.Table{"of a table": nameset.NewTable(), "of none": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				var s nameset.Set
				reference := map[string]bool{}
				some := rapid.SliceOfN(rapid.SampledFrom(numbered(40)), 0, 40)
				for range rapid.IntRange(1, 10).Draw(t, "steps") {
					names := some.Draw(t, "names")
					before := s
					switch step := rapid.SampledFrom([]string{"of", "with", "without", "minus"}).Draw(t, "step"); step {
					case "of":
						clear(reference)
						s = table.Of(names)
						fallthrough
					case "with":
						s = table.With(s, names...)
						for _, name := range names {
							reference[name] = true
						}
					case "without", "minus":
						if step == "without" {
							s = table.Without(s, names...)
						} else {
							s = table.Minus(s, table.Of(names))
						}
						maps.DeleteFunc(reference, func(name string, _ bool) bool { return slices.Contains(names, name) })
					}
					want := slices.Sorted(maps.Keys(reference))
					if d := cmp.Diff(want, slices.Collect(s.All())); d != "" || s.Len() != len(want) {
						t.Fatalf("len %d (-want +got):\n%s", s.Len(), d)
					}
					for name := range before.Missing(s) {
						if !before.Has(name) || s.Has(name) {
							t.Fatalf("%s is not missing", name)
						}
					}
				}
			})
		})
	}
}

// TestEqualSetsAreOne whatever way they came about.
func TestEqualSetsAreOne(t *testing.T) {
	t.Parallel()
	table := nameset.NewTable()
	names := numbered(100)
	whole := table.Of(names)
	backwards := slices.Clone(names)
	slices.Reverse(backwards)
	for what, s := range map[string]nameset.Set{
		"in another order": table.Of(backwards),
		"twice":            table.Of(slices.Concat(names, names)),
		"grown":            table.With(table.Of(names[:99]), names[99]),
		"grown by many":    table.With(table.Of(names[:2]), names...),
		"less":             table.Minus(table.With(whole, "another"), table.Of([]string{"another", "other"})),
		"shrunk":           table.Without(table.With(whole, "another"), "another"),
	} {
		if s != whole {
			t.Errorf("%s: another set", what)
		}
	}
	if table.With(whole, "another") == whole || table.Of(numbered(99)) == whole {
		t.Error("sets that differ are one")
	}
}

// TestASetGoesWithItsHolders: a table keeps no set in memory.
func TestASetGoesWithItsHolders(t *testing.T) {
	t.Parallel()
	table := nameset.NewTable()
	kept := table.Of(numbered(20))
	for i := range 10_000 {
		table.With(kept, fmt.Sprint(i))
		if i%1000 == 0 {
			runtime.GC()
		}
	}
	if n := table.Len(); n > 5_000 {
		t.Errorf("%d sets are known of 10,000 that went", n)
	}
	if table.Of(numbered(20)) != kept {
		t.Error("a set that is held was forgotten")
	}
}

// BenchmarkOf measures a set of 6,000 names that the table knows already.
func BenchmarkOf(b *testing.B) {
	table := nameset.NewTable()
	names := numbered(6_000)
	kept := table.Of(names)
	b.ReportAllocs()
	for b.Loop() {
		if table.Of(names) != kept {
			b.Fatal("another set")
		}
	}
}

// message yields names as Read wants them, like a received message.
func message(names []string) func() func() ([]byte, bool) {
	received := make([][]byte, len(names))
	for i, name := range names {
		received[i] = []byte(name)
	}
	return func() func() ([]byte, bool) {
		left := received
		return func() ([]byte, bool) {
			if len(left) == 0 {
				return nil, false
			}
			name := left[0]
			left = left[1:]
			return name, true
		}
	}
}

// TestNamesAreReadAsTheyAre in any order, with names repeated, and whether the set is
// known or not.
func TestNamesAreReadAsTheyAre(t *testing.T) {
	t.Parallel()
	for what, table := range map[string]*nameset.Table{"of a table": nameset.NewTable(), "of none": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				names := rapid.SliceOfN(rapid.SampledFrom(numbered(40)), 0, 60).Draw(t, "names")
				known := table.Of(rapid.SliceOfN(rapid.SampledFrom(numbered(40)), 0, 60).Draw(t, "known"))
				if rapid.Bool().Draw(t, "sorted") {
					names = slices.Compact(slices.Sorted(slices.Values(names)))
				}
				want := slices.Compact(slices.Sorted(slices.Values(names)))
				if d := cmp.Diff(want, slices.Collect(table.Read(message(names)).All()), cmpopts.EquateEmpty()); d != "" {
					t.Fatalf("(-want +got):\n%s", d)
				}
				runtime.KeepAlive(known)
			})
		})
	}
}

// TestKnownNamesAreReadOnce: two hundred messages with the same names make one set, and
// only the names of the first are copied.
func TestKnownNamesAreReadOnce(t *testing.T) {
	table := nameset.NewTable()
	names := numbered(6_000)
	kept := table.Read(message(names))
	received := message(names)
	got := testing.AllocsPerRun(200, func() {
		if table.Read(received) != kept {
			t.Fatal("another set")
		}
	})
	t.Logf("%.0f allocations", got)
	if got > 10 {
		t.Errorf("%.0f allocations for names that are known", got)
	}
}

// TestSetsGrowTogether: Plus returns the union of two sets.
func TestSetsGrowTogether(t *testing.T) {
	t.Parallel()
	table := nameset.NewTable()
	names := numbered(100)
	all := table.Of(names)
	for what, s := range map[string]nameset.Set{
		"halves":      table.Plus(table.Of(names[:50]), table.Of(names[50:])),
		"a few":       table.Plus(table.Of(names[:3]), table.Of(names[1:])),
		"with itself": table.Plus(all, all), "with none": table.Plus(all, nameset.Set{}), "none with it": table.Plus(nameset.Set{}, all),
	} {
		if s != all {
			t.Errorf("%s: another set, of %d names", what, s.Len())
		}
	}
}

// BenchmarkRead measures a message of 6,000 names that the table knows already.
func BenchmarkRead(b *testing.B) {
	table := nameset.NewTable()
	names := numbered(6_000)
	kept := table.Of(names)
	received := message(names)
	b.ReportAllocs()
	for b.Loop() {
		if table.Read(received) != kept {
			b.Fatal("another set")
		}
	}
}
