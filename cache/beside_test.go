package cache_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestWhatChangedBesideTheStore: the changes of a random history add up to the objects
// of other sources, and every change is a real one.
func TestWhatChangedBesideTheStore(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var last *cache.Snapshot
	have := map[string][]*config.Config{}
	for round := range int64(300) {
		content := last.Content()
		for range random.IntN(3) {
			key := config.Key{Kind: schema.ServiceEntry, Namespace: "shop", Name: fmt.Sprint(random.IntN(5))}
			path := key.Path()
			var all []*config.Config
			for _, source := range []string{"", "one", "two"} {
				if random.IntN(2) == 0 {
					all = append(all, &config.Config{Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name, Source: source}})
				}
			}
			if was := content.Shadows.Value(path); was != nil && random.IntN(2) == 0 {
				all = was.Objects[:1+random.IntN(len(was.Objects))] // the first ones stay the same
			}
			content.Configs, content.Shadows = content.Configs.Delete(path), content.Shadows.Delete(path)
			if len(all) > 0 {
				content.Configs = content.Configs.Set(path, all[0])
			}
			if len(all) > 1 {
				content.Shadows = content.Shadows.Set(path, &cache.Shadow{Objects: all})
			}
		}
		next := last.Next(round+1, content)
		for change := range cache.ChangedBeside(last, next) {
			if d := cmp.Diff(have[change.Path], change.Old, cmp.Comparer(func(a, b *config.Config) bool { return a == b })); d != "" && len(change.Old)+len(have[change.Path]) > 0 {
				t.Fatalf("round %d, %s was (-had +told):\n%s", round, change.Path, d)
			}
			have[change.Path] = change.New
		}
		want := map[string][]*config.Config{}
		for change := range cache.ChangedBeside(nil, next) {
			want[change.Path] = change.New
		}
		for path, objects := range have {
			if len(objects) == 0 {
				delete(have, path)
			}
		}
		if d := cmp.Diff(want, have, cmp.Comparer(func(a, b *config.Config) bool { return a == b })); d != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, d)
		}
		last = next
	}
	for range cache.ChangedBeside(last, last.Next(1000, last.Content())) {
		t.Error("nothing has changed")
	}
	store := cache.NewSnapshot(1, pmap.Map[*config.Config]{}.Set("x", &config.Config{}))
	for change := range cache.ChangedBeside(nil, store) {
		t.Errorf("the store is told of: %+v", change)
	}
}
