package mirror_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// TestDeletionsOfTheListedRevision: a client has seen a part of a revision, and resumes
// at a server whose first list is of that revision. It gets all of it, puts and
// deletions, although no list has these.
func TestDeletionsOfTheListedRevision(t *testing.T) {
	t.Parallel()
	for name, compacted := range map[string]bool{"kept": false, "compacted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			r := cachetest.NewRig(t, subject(t, client, client))
			r.Apply(cachetest.Put("a", "x", 1), cachetest.Put("a", "y", 1), cachetest.Put("b", "z", 1), cachetest.Put("b", "stays", 1))
			revision := cachetest.Revision(t, r.Apply(cachetest.Remove("a", "x"), cachetest.Remove("b", "z"),
				cachetest.Put("a", "y", 2), cachetest.Put("b", "new", 1)))
			r.Start()
			want := []string{"delete a/x", "put a/y", "put b/new", "delete b/z"}
			if compacted {
				if _, err := client.Compact(t.Context(), revision); err != nil {
					t.Fatal(err)
				}
				want = []string{"put a/y", "put b/new"} // the state before is unknown
			}
			since, ok := mirrorOf(r).Since(t.Context(), revision)
			if !ok || since.Revision() != revision-1 {
				t.Fatalf("Since the listed revision %d = %s, %v", revision, since.Version(), ok)
			}
			if got := eventsBetween(since, r.Cache.Snapshot()); !slices.Equal(got, want) {
				t.Errorf("the client is told %q, want %q", got, want)
			}
		})
	}
}

func eventsBetween(from, to *cache.Snapshot) (events []string) {
	for c := range pmap.Diff(from.Configs(), to.Configs()) {
		if c.HasNew {
			events = append(events, "put "+c.New.Namespace+"/"+c.New.Name)
		} else {
			events = append(events, "delete "+c.Old.Namespace+"/"+c.Old.Name)
		}
	}
	return events
}
