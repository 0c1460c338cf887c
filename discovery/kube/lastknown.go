package kube

import (
	"context"
	"net/url"
	"slices"
	"time"

	"maps"

	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// The wait between attempts to read what was last known from the store.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

var _ lastknown.Source = (*Registry)(nil)

// Sources returns the cluster, as a source whose objects can be saved.
func (r *Registry) Sources() []lastknown.Source { return []lastknown.Source{r} }

// SourceName implements lastknown.Source.
func (r *Registry) SourceName() string { return "kubernetes/" + url.PathEscape(r.Cluster()) }

// Known implements lastknown.Source.
func (r *Registry) Known() (lastknown.Known, bool) {
	l := r.link.Load()
	until := l.LostSince()
	if !r.inbox.isWhole() || !l.Synced() {
		return lastknown.Known{}, false
	}
	return lastknown.Known{Until: until, Items: r.settled.Load().known.objects}, true
}

// restore fills the registry with what was last known of the cluster, and says whether anything was.
func (r *Registry) restore(ctx context.Context) bool {
	recalled, ok := r.recall(ctx)
	if !ok || recalled.Confirmed.IsZero() {
		return false
	}
	known, paths := map[string]object{}, map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(recalled.Items)) {
		o, err := decode(path, recalled.Items[path])
		if err != nil {
			r.clusters.o.Logger.Warn("an object that was saved is left out: it cannot be read", "cluster", r.Cluster(), "object", path, "err", err)
			continue
		}
		known[path], paths[path] = o, true
	}
	r.inbox.mu.Lock()
	r.inbox.restored, r.inbox.confirmed = paths, recalled.Confirmed
	r.inbox.mu.Unlock()
	r.clusters.o.Worker.Post(restoring{r}, func() {
		r.clusters.join(r)
		r.apply(known)
	})
	return true
}

// restoring is the key of the task that takes over what was last known.
type restoring struct{ *Registry }

// recall retries while the store is away.
func (r *Registry) recall(ctx context.Context) (lastknown.Recalled, bool) {
	if r.clusters.o.Memory == nil {
		return lastknown.Recalled{}, false
	}
	backoff := retry.New(minPause, maxPause)
	for {
		recalled, err := r.clusters.o.Memory.Recall(ctx, r.SourceName())
		if err == nil || ctx.Err() != nil {
			return recalled, err == nil
		}
		r.clusters.o.Logger.Warn("what was last known of a cluster cannot be read from the store, it is tried again", "cluster", r.Cluster(), "err", err)
		_ = backoff.Wait(ctx)
	}
}
