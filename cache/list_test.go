package cache_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// TestListAfter: after each object of a list, ListAfter has those that follow it, and after a
// Path that has no object, too.
func TestListAfter(t *testing.T) {
	t.Parallel()
	var configs pmap.Map[*config.Config]
	for _, key := range []config.Key{
		{Kind: alpha, Namespace: "a", Name: "x"}, {Kind: alpha, Namespace: "a", Name: "y"}, {Kind: alpha, Namespace: "a-b", Name: "x"},
		{Kind: alpha, Namespace: "b", Name: "x"}, {Kind: beta, Namespace: "a", Name: "x"},
	} {
		configs = configs.Set(key.Path(), &config.Config{Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name}})
	}
	s := cache.NewSnapshot(1, configs)
	for namespace, n := range map[string]int{"": 4, "a": 2, "c": 0} {
		all := slices.Collect(s.List(alpha, namespace))
		if len(all) != n {
			t.Errorf("in %q: %d objects", namespace, len(all))
		}
		for i, object := range all {
			path := object.Key().Path()
			if got := slices.Collect(s.ListAfter(alpha, namespace, path)); !slices.Equal(got, all[i+1:]) {
				t.Errorf("in %q after %s: %v", namespace, path, got)
			}
			if got := slices.Collect(s.ListAfter(alpha, namespace, path+"!")); !slices.Equal(got, all[i+1:]) {
				t.Errorf("in %q after %s!: %v", namespace, path, got)
			}
		}
		if got := slices.Collect(s.ListAfter(alpha, namespace, "")); !slices.Equal(got, all) {
			t.Errorf("in %q from the beginning: %v", namespace, got)
		}
	}
	if got := slices.Collect(s.ListAfter(alpha, "", config.KindPath(beta))); got != nil {
		t.Errorf("after all: %v", got)
	}
}
