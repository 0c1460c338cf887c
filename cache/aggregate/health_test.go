package aggregate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// reporting is a source of one WorkloadEntry with a report on it.
type reporting struct {
	*fake
	revision int64
}

func (r *reporting) publish(object bool, message string) {
	var content cache.Content
	key := config.Key{Kind: schema.WorkloadEntry, Namespace: "a", Name: "w"}
	if r.revision++; object {
		one := &config.Config{Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name, ResourceVersion: fmt.Sprint(r.revision)}}
		content.Configs = content.Configs.Set(key.Path(), one)
	}
	if message != "" {
		report := &health.Report{Namespace: "a", Name: "w", Message: message, Revision: health.OfSource}
		if odd, ok := strings.CutPrefix(message, "odd "); ok {
			report.Unknown, report.Odd, report.Message = true, odd, ""
		}
		content.Health = pmap.Map[*health.Report]{}.Set(health.Path("a", "w"), report)
	}
	r.Publish(r.Snapshot().Next(r.revision, content))
}

// storing is a store of which a test publishes the snapshots.
type storing struct {
	*reporting
	storage.Batcher
}

// TestTheHealthOfTheObjectThatCounts: the report of a source counts if its WorkloadEntry does. Without one
// the report of the store stays.
func TestTheHealthOfTheObjectThatCounts(t *testing.T) {
	t.Parallel()
	store, below, worker := storing{reporting: &reporting{fake: newFake()}}, &reporting{fake: newFake()}, cache.NewWorker()
	all, err := aggregate.MakeCache(aggregate.Options{
		Worker: worker, Store: store, FirstSync: time.Hour,
		Sources: []aggregate.Source{{Name: "store", Cache: store}, {Name: "below", Cache: below}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rig := cachetest.NewRig(t, cachetest.Subject{Cache: all, Worker: worker})
	store.publish(false, "")
	below.publish(false, "")
	rig.Launch()
	for _, step := range []struct {
		what    string
		publish func()
		want    string
	}{
		{"only the store's report", func() { store.publish(false, "own") }, "own"},
		{"an object without a report", func() { below.publish(true, "") }, "own"},
		{"a report that cannot be read", func() { below.publish(true, "odd yes") }, "own, odd yes"},
		{"that, without the store's report", func() { store.publish(false, "") }, ", odd yes"},
		{"the store's report again", func() { store.publish(false, "own") }, "own, odd yes"},
		{"a report on it", func() { below.publish(true, "theirs") }, "theirs"},
		{"the store's report goes", func() { store.publish(false, "") }, "theirs"},
		{"another report alone", func() { below.publish(true, "theirs too") }, "theirs too"},
		{"an object in the store", func() { store.publish(true, "own") }, "own"},
		{"a report on what does not count", func() { below.publish(true, "shadowed") }, "own"},
		{"no report on what counts", func() { store.publish(true, "") }, ""},
		{"the store's object goes", func() { store.publish(false, "") }, "shadowed"},
		{"the other one goes", func() { below.publish(false, "shadowed") }, ""},
		{"it is back", func() { below.publish(true, "back") }, "back"},
		{"its source is removed", func() {
			if err := all.Remove("below"); err != nil {
				t.Error(err)
			}
		}, ""},
		{"only the store is left", func() { store.publish(true, "own") }, "own"},
	} {
		step.publish()
		rig.Eventually(fmt.Sprintf("%s: the report is %q", step.what, step.want), func() bool {
			rig.Quiesce()
			s, got := all.Handled(), ""
			if r := s.Health().Value(health.Path("a", "w")); r != nil {
				if got = r.Message; r.Odd != "" {
					got += ", odd " + r.Odd
				}
			}
			return got == step.want && s.Health().Len() == min(len(step.want), 1)
		})
	}
}
