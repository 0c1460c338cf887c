package verdict_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/verdict"
)

// TestNames: a name counts once, however often it is added.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names         []string
		count         int
		first, string string
	}{
		{},
		{names: []string{"b", "a", "b"}, count: 2, first: "b, a", string: "b, a"},
		{names: []string{"a", "a", "b", "c", "c"}, count: 3, first: "a, b, c", string: "a, b, c"},
		{names: []string{"a", "b", "c", "d", "a", "e", "d", "e"}, count: 5, first: "a, b, c", string: "a, b, c and 2 more"},
	} {
		var n verdict.Names
		for _, name := range c.names {
			n.Add(name)
		}
		if n.Count() != c.count || n.First() != c.first || n.String() != c.string {
			t.Errorf("%v: %d, %q, %q", c.names, n.Count(), n.First(), n.String())
		}
	}
}
