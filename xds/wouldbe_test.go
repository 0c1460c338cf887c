package xds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestWhatWouldBeIsWhatComes: after any history of several registries, WouldBe foresees the
// rows and resources that a change of the configuration then makes. It changes nothing
// itself.
func TestWhatWouldBeIsWhatComes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sources{t}
		r := newReplicaOf(t, s.mesh(), serviceentry.Switches{})
		var events []event
		for range rapid.IntRange(1, 15).Draw(t, "events") {
			draw := map[string]func() event{"config": s.configs, "health": s.health, "pods": s.pods, "memory": s.memory}
			events = append(events, draw[s.one("source", "config", "config", "health", "pods", "memory")]())
		}
		r.run(t, events)

		change := s.configs()
		draft := &replica{configs: r.configs, feed: cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()})}
		change.do(draft)
		rows, versions := r.rows(), r.versions()
		is, would, known := r.server.WouldBe(opsBetween(r.configs, draft.configs))
		if !known || is.Context.Inputs() != r.server.Inputs() {
			t.Fatalf("known %v, from the last commit %v", known, is.Context.Inputs() == r.server.Inputs())
		}
		foreseen := r.versionsIn(would.Context)
		r.settle()
		r.push()
		if diff := cmp.Diff([]any{rows, versions}, []any{r.rows(), r.versions()}); diff != "" {
			t.Fatalf("asking changed what is (-before +after)\n%s", diff)
		}

		change.do(r)
		r.push()
		if diff := cmp.Diff(r.rows(), rowsOf(would.Context.Inputs())); diff != "" {
			t.Fatalf("rows (-came +would)\n%s\n%s", diff, written(append(events, change)))
		}
		if diff := cmp.Diff(r.versions(), foreseen); diff != "" {
			t.Fatalf("resources (-came +would)\n%s\n%s", diff, written(append(events, change)))
		}
	})
}
