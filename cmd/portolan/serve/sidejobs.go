package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
	sidespec "github.com/portolan-mesh/portolan/storage/side"
)

const (
	// eventLife is how long an event is kept after it last happened.
	eventLife = time.Hour
	// sideInterval is how often the sidePruner looks, and sideBatch how many events it deletes
	// in one change.
	sideInterval = 10 * time.Second
	sideBatch    = 100
)

// A sidePruner deletes old events, and the records of batches that nobody asks for any more.
type sidePruner struct {
	side   *side
	logger *slog.Logger
}

// run implements job.
func (p *sidePruner) run(ctx context.Context, leader *election.Leader) error {
	store := p.side.fenced(leader)
	ticker := time.NewTicker(sideInterval)
	defer ticker.Stop()
	for pruned := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := p.deleteEvents(ctx, store, time.Now())
		if err == nil && time.Since(pruned) > storage.HistoryGrace {
			if _, err = store.Prune(ctx, storage.Retention{Keep: 1}); err == nil {
				pruned = time.Now()
			}
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, election.ErrNotLeader):
			return nil
		case err != nil:
			p.logger.Warn("old events were not deleted, it will be tried again", "err", err, "after", sideInterval)
		}
	}
}

func (p *sidePruner) deleteEvents(ctx context.Context, store *etcd.Store, now time.Time) error {
	for batch := range slices.Chunk(oldEvents(p.side.cache.Snapshot(), now), sideBatch) {
		if _, _, err := store.Apply(ctx, batch); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
	}
	return nil
}

// oldEvents returns the deletions of the events that are not kept: those of more than an hour
// ago, and all but the newest.
func oldEvents(snapshot *cache.Snapshot, now time.Time) (out []storage.Op) {
	if snapshot == nil {
		return nil
	}
	type one struct {
		object *config.Config
		last   time.Time
	}
	var all []one
	for object := range snapshot.List(schema.Event, "") {
		last := object.CreationTimestamp
		if e, ok := object.Spec.(*sidespec.Event); ok && e.Last().After(last) && !e.Last().After(now) {
			last = e.Last()
		}
		all = append(all, one{object, last})
	}
	slices.SortStableFunc(all, func(a, b one) int { return cmp.Compare(b.last.UnixNano(), a.last.UnixNano()) })
	for i, e := range all {
		if i >= schema.KeptEvents || now.Sub(e.last) > eventLife {
			out = append(out, storage.Op{Verb: storage.Delete, Key: e.object.Key()})
		}
	}
	return out
}

// A namespaceMaker makes a namespace for objects that have none: who puts the first object into a
// namespace need not make that before.
type namespaceMaker struct {
	side *side
	mesh configCache
	// always are the namespaces that there are without objects, too.
	always []string
	logger *slog.Logger
}

// run implements job.
func (m *namespaceMaker) run(ctx context.Context, leader *election.Leader) error {
	store := m.side.fenced(leader)
	if _, err := m.side.cache.Await(ctx, 0); err != nil {
		return nil // ctx has ended
	}
	backoff := retry.New(time.Second, time.Minute)
	for seen := (*cache.Snapshot)(nil); ; {
		now, err := m.mesh.Next(ctx, seen)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, storage.ErrCompacted) {
			now, err = m.mesh.Await(ctx, 0)
		}
		if err == nil {
			err = m.make(ctx, store, namespacesAdded(seen, now))
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, election.ErrNotLeader):
			return nil
		case err != nil:
			m.logger.Warn("namespaces of objects were not made, it will be tried again", "err", err)
			_ = backoff.Wait(ctx)
			continue
		}
		backoff.Reset()
		seen = now
	}
}

// make makes the namespaces that are not there.
func (m *namespaceMaker) make(ctx context.Context, store *etcd.Store, names map[string]bool) error {
	for _, name := range m.always {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if m.side.cache.Snapshot().Get(config.Key{Kind: schema.Namespace, Name: name}) != nil {
			continue
		}
		_, err := store.Create(ctx, &config.Config{Meta: config.Meta{GroupVersionKind: schema.Namespace, Name: name}, Spec: &corev1.NamespaceSpec{}})
		if err != nil && !errors.Is(err, storage.ErrExists) {
			return err
		}
	}
	return nil
}

// namespacesAdded returns the namespaces of the objects that are new in a snapshot.
func namespacesAdded(from, to *cache.Snapshot) map[string]bool {
	out := map[string]bool{}
	for change := range pmap.Diff(from.Configs(), to.Configs()) {
		if change.HasNew && !change.HasOld && change.New.Namespace != "" {
			out[change.New.Namespace] = true
		}
	}
	return out
}
