package host_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/host"
)

func TestMatchesAndSubsetOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, o               host.Name
		matches, nIn, oInN bool
	}{
		{"a.com", "a.com", true, true, true},
		{"a.com", "b.com", false, false, false},
		{"a.com", "*", true, true, false},
		{"*", "*", true, true, true},
		{"a.com", "*.com", true, true, false},
		{"com", "*.com", false, false, false},
		{".com", "*.com", false, false, false},
		{"x.a.com", "*.a.com", true, true, false},
		{"y.x.a.com", "*.a.com", true, true, false},
		{"a.com", "*.a.com", false, false, false},
		{"ba.com", "*.a.com", false, false, false},
		{"*.a.com", "*.com", true, true, false},
		{"*.a.com", "*.b.com", false, false, false},
		{"*.a.com", "*", true, true, false},
		{"A.com", "a.com", false, false, false},
	} {
		if got := test.n.Matches(test.o); got != test.matches {
			t.Errorf("%q.Matches(%q) = %v", test.n, test.o, got)
		}
		if got := test.o.Matches(test.n); got != test.matches {
			t.Errorf("%q.Matches(%q) = %v", test.o, test.n, got)
		}
		if got := test.n.SubsetOf(test.o); got != test.nIn {
			t.Errorf("%q.SubsetOf(%q) = %v", test.n, test.o, got)
		}
		if got := test.o.SubsetOf(test.n); got != test.oInN {
			t.Errorf("%q.SubsetOf(%q) = %v", test.o, test.n, got)
		}
	}
}

func TestCompareOrdersBySpecificity(t *testing.T) {
	t.Parallel()
	want := []host.Name{"long.a.com", "a.a.com", "b.a.com", "a.com", "*.long.a.com", "*.a.com", "*.b.com", "*.com", "*"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compare)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for name, want := range map[host.Name]string{
		"a.b.c":   "a.b.c *.b.c *.c *",
		"*.b.c":   "*.b.c *.c *",
		"*.c":     "*.c *",
		"a":       "a *",
		"*":       "*",
		"a.b.c.d": "a.b.c.d *.b.c.d *.c.d *.d *",
	} {
		var got []string
		for n := range name.Covers() {
			got = append(got, string(n))
		}
		if d := cmp.Diff(want, strings.Join(got, " ")); d != "" {
			t.Errorf("%q.Covers() (-want +got):\n%s", name, d)
		}
		for n := range name.Covers() { // the iteration ends when the caller stops
			if n == name {
				break
			}
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, namespace, domain, want string }{
		{"reviews", "shop", "mesh.local", "reviews.shop.svc.mesh.local"},
		{"reviews", "shop", "", "reviews.shop"},
		{"reviews", "", "mesh.local", "reviews.mesh.local"},
		{"reviews", "", "", "reviews"},
		{"reviews.shop", "shop", "mesh.local", "reviews.shop"},
		{"*", "shop", "mesh.local", "*"},
		{"*.com", "shop", "mesh.local", "*.com"},
		{"10.0.0.1", "shop", "mesh.local", "10.0.0.1"},
		{"::1", "shop", "mesh.local", "::1"},
		{"", "shop", "mesh.local", ""},
	} {
		if got := host.Resolve(test.name, test.namespace, test.domain); string(got) != test.want {
			t.Errorf("Resolve(%q, %q, %q) = %q, want %q", test.name, test.namespace, test.domain, got, test.want)
		}
	}
}

// names generates valid host names and patterns, short so that they often match.
func names() *rapid.Generator[host.Name] {
	return rapid.Custom(func(t *rapid.T) host.Name {
		labels := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab"}), 1, 4).Draw(t, "labels")
		name := strings.Join(labels, ".")
		switch rapid.IntRange(0, 4).Draw(t, "form") {
		case 0:
			return "*"
		case 1, 2:
			return host.Name("*." + name)
		}
		return host.Name(name)
	})
}

func TestLawsOfNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := names().Draw(t, "a"), names().Draw(t, "b"), names().Draw(t, "c")
		if a.Matches(b) != b.Matches(a) {
			t.Fatalf("Matches is not symmetric: %q, %q", a, b)
		}
		if a.SubsetOf(b) && !a.Matches(b) {
			t.Fatalf("%q is covered by %q and does not overlap with it", a, b)
		}
		if a.SubsetOf(b) && b.SubsetOf(c) && !a.SubsetOf(c) {
			t.Fatalf("SubsetOf is not transitive: %q, %q, %q", a, b, c)
		}
		if a.SubsetOf(b) && b.SubsetOf(a) && a != b {
			t.Fatalf("%q and %q cover each other", a, b)
		}
		if a.SubsetOf(b) && compare(a, b) > 0 {
			t.Fatalf("%q is covered by %q and yet less specific", a, b)
		}
		if compare(a, b) != -compare(b, a) || (compare(a, b) == 0) != (a == b) {
			t.Fatalf("compare is no order: %q, %q", a, b)
		}
	})
}

// TestCoversIsEveryCoveringName compares Covers with its definition: all names that cover
// n, most specific first.
func TestCoversIsEveryCoveringName(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := names().Draw(t, "n")
		others := rapid.SliceOfDistinct(names(), func(n host.Name) host.Name { return n }).Draw(t, "others")
		var want []host.Name
		for _, o := range others {
			if n.SubsetOf(o) {
				want = append(want, o)
			}
		}
		slices.SortFunc(want, compare)
		var got []host.Name
		for o := range n.Covers() {
			if slices.Contains(others, o) {
				got = append(got, o)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("names covering %q among %q (-want +got):\n%s", n, others, d)
		}
	})
}

// compare orders by specificity: exact names before patterns, then the longer
// first, then by the alphabet (Istio's MoreSpecific).
func compare(a, b host.Name) int {
	if aw, bw := a.IsWildcard(), b.IsWildcard(); aw != bw {
		if bw {
			return -1
		}
		return 1
	}
	if c := len(b) - len(a); c != 0 {
		return c
	}
	return strings.Compare(string(a), string(b))
}
