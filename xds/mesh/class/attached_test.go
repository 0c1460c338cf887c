package class_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

func TestAttached(t *testing.T) {
	t.Parallel()
	var a class.Attached
	a = a.Add(class.Source, "app=web", "app=web,version=v1").Add(class.Client).Add(class.Sidecar, "s").Add(class.Gateway, "g/1", "g/2")
	for _, test := range []struct {
		kind class.Kind
		want []string
	}{
		{class.Trait, nil},
		{class.Source, []string{"app=web", "app=web,version=v1"}},
		{class.Client, nil},
		{class.Sidecar, []string{"s"}},
		{class.Gateway, []string{"g/1", "g/2"}},
	} {
		if got := slices.Collect(a.Names(test.kind)); !slices.Equal(got, test.want) {
			t.Errorf("%c: %q, want %q", test.kind, got, test.want)
		}
		var alone class.Attached
		if got := a.Of(test.kind); got != alone.Add(test.kind, test.want...) {
			t.Errorf("of %c: %q", test.kind, got)
		}
		if got := a.Without(test.kind); len(slices.Collect(got.Names(test.kind))) > 0 || len(got)+len(a.Of(test.kind)) != len(a) {
			t.Errorf("without %c: %q", test.kind, got)
		}
	}
	for name, want := range map[string]bool{"app=web": true, "app=we": false, "app=web,version=v1": true, "version=v1": false, "": false} {
		if a.Has(class.Source, name) != want {
			t.Errorf("has %q: %v", name, !want)
		}
	}
	if a.Has(class.Client, "app=web") {
		t.Error("a name counts for another kind")
	}
}
