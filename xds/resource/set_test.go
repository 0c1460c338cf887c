package resource_test

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// version is a Set, its expected content, and a Set that is built from that content at
// once.
type version struct {
	set   resource.Set
	has   map[string]*resource.Resource
	whole resource.Set
}

func sorted(has map[string]*resource.Resource) iter.Seq2[string, *resource.Resource] {
	return func(yield func(string, *resource.Resource) bool) {
		for _, name := range slices.Sorted(maps.Keys(has)) {
			if !yield(name, has[name]) {
				return
			}
		}
	}
}

// identical compares resources by identity, since Sets do.
var identical = cmp.Comparer(func(a, b *resource.Resource) bool { return a == b })

type named struct {
	Name string
	Is   *resource.Resource
}

func list(seq iter.Seq2[string, *resource.Resource]) (out []named) {
	for name, r := range seq {
		out = append(out, named{name, r})
	}
	return out
}

// TestASetIsTheSameHoweverItIsKept: resources that are kept beside the rest are found,
// changed, listed and compared like all others.
func TestASetIsTheSameHoweverItIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := func() string {
			return rapid.SampledFrom([]string{"a", "a/1", "a/2", "b", "b/1", "c", "d"}).Draw(t, "name")
		}
		some := func(most int) map[string]*resource.Resource {
			out := map[string]*resource.Resource{}
			for range rapid.IntRange(0, most).Draw(t, "some") {
				n := name()
				out[n] = &resource.Resource{Name: n}
			}
			return out
		}
		versions := []version{{has: map[string]*resource.Resource{}}}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			v := rapid.SampledFrom(versions).Draw(t, "version")
			next := version{set: v.set, has: maps.Clone(v.has)}
			switch n := name(); rapid.SampledFrom([]string{"set", "delete", "beside", "beside another"}).Draw(t, "step") {
			case "set":
				r := &resource.Resource{Name: n}
				next.set, next.has[n] = v.set.Set(n, r), r
			case "delete":
				next.set = v.set.Delete(n)
				delete(next.has, n)
			case "beside":
				few := some(3)
				next.set = v.set.Beside(resource.FromSorted(sorted(few)))
				maps.Copy(next.has, few)
			case "beside another":
				few := rapid.SampledFrom(versions).Draw(t, "few")
				next.set = v.set.Beside(few.set)
				maps.Copy(next.has, few.has)
			}
			next.whole = resource.FromSorted(sorted(next.has))
			versions = append(versions, next)
		}
		from, to := rapid.SampledFrom(versions).Draw(t, "from"), rapid.SampledFrom(versions).Draw(t, "to")
		check(t, from)
		changes := slices.Collect(resource.Diff(from.whole, to.whole))
		same(t, "diff", changes, slices.Collect(resource.Diff(from.set, to.set)))
		same(t, "diff of what differs", changes, slices.Collect(resource.Diff(resource.Differing(from.set, to.set))))
		for n := range changes {
			same(t, "the first of a diff", changes[:n], first(n, resource.Diff(from.set, to.set)))
		}
		if from.set == to.set && len(changes) > 0 {
			t.Fatal("two are == and differ")
		}
	})
}

// first returns the first n elements of a sequence, and stops it there.
func first[T any](n int, seq iter.Seq[T]) (out []T) {
	for one := range seq {
		if len(out) == n {
			break
		}
		out = append(out, one)
	}
	return out
}

func same(t *rapid.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, identical, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// check compares everything that a Set answers with its expected content.
func check(t *rapid.T, v version) {
	t.Helper()
	all := list(sorted(v.has))
	same(t, "all", all, list(v.set.All()))
	same(t, "length", len(v.has), v.set.Len())
	same(t, "keys", slices.Sorted(maps.Keys(v.has)), slices.Collect(v.set.Keys()))
	same(t, "values", slices.Collect(v.whole.Values()), slices.Collect(v.set.Values()))
	names := pmap.Map[struct{}]{}
	var found []named
	for _, name := range []string{"a/1", "b", "d", "e"} {
		names = names.Set(name, struct{}{})
		found = append(found, named{name, v.has[name]})
		r, ok := v.set.Get(name)
		if want, has := v.has[name]; r != want || ok != has || v.set.Value(name) != want {
			t.Fatalf("%s: got %v, %v, want %v", name, r, ok, want)
		}
	}
	same(t, "found", found, list(resource.Find(names, v.set)))
	for _, prefix := range []string{"", "a/", "b", "x"} {
		within := slices.DeleteFunc(slices.Clone(all), func(n named) bool { return !strings.HasPrefix(n.Name, prefix) })
		same(t, prefix, within, list(v.set.Prefix(prefix)))
	}
	for n := range all {
		same(t, "the first", slices.Collect(v.whole.Keys())[:n], first(n, v.set.Keys()))
	}
	for name, r := range v.has {
		if v.set.Set(name, r) != v.set {
			t.Fatal("a change of nothing made a new set")
		}
	}
	if v.set.Delete("none") != v.set || v.set.Beside(resource.Set{}) != v.set {
		t.Fatal("a change of nothing made a new set")
	}
}

// TestWhatDiffersIsSharedByThoseOfOneClass: the resources that a client has beside the
// rest do not show in the two Sets that Differing returns, so clients of a class get the
// same two.
func TestWhatDiffersIsSharedByThoseOfOneClass(t *testing.T) {
	t.Parallel()
	var before resource.Set
	for _, name := range []string{"a", "b", "c"} {
		before = before.Set(name, &resource.Resource{Name: name})
	}
	after := before.Set("b", &resource.Resource{Name: "b", Version: "2"})
	few := resource.Set{}.Set("in", &resource.Resource{Name: "in"})
	from, to := resource.Differing(before.Beside(few), after.Beside(few))
	if from != before || to != after {
		t.Error("what a client has beside the rest is compared")
	}
	one, other := before.Beside(few), before.Beside(few)
	if one == before || one != other {
		t.Error("what is beside the rest does not tell sets apart, or always does")
	}
}
