package mirror

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// errWatchEnded: etcd closed the watch without a reason.
var errWatchEnded = errors.New("the watch ended")

// follow watches, and resumes a watch that was cut, until ctx ends or only a new list
// helps; the error says why.
func (c *Cache) follow(ctx context.Context, backoff *retry.Backoff) error {
	for {
		err := c.watch(ctx, backoff)
		if ctx.Err() != nil || errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, errWentBack) || errors.Is(err, errDiverged) {
			return err
		}
		c.o.Log.Warn("the watch of etcd was cut, watching again", "err", err, "revision", c.Snapshot().Revision())
		_ = backoff.Wait(ctx) // if ctx has ended, the next watch fails
	}
}

// watch receives until the watch ends. A lost connection does not end it: the client
// resumes it.
func (c *Cache) watch(ctx context.Context, backoff *retry.Backoff) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel(nil)
	responses := c.client.Watch(ctx, etcd.MeshPrefix, c.watchOptions()...)
	beside.Go(func() { c.keepInStep(ctx, cancel) })
	if c.o.CheckInterval > 0 {
		beside.Go(func() { c.check(ctx, cancel) })
	}
	for response := range responses {
		if err := c.receive(ctx, &response); err != nil {
			return err
		}
		backoff.Reset()
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errWatchEnded
}

func (c *Cache) watchOptions() []clientv3.OpOption {
	options := []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithRev(c.Snapshot().Revision() + 1),
		clientv3.WithProgressNotify(), clientv3.WithCreatedNotify(),
	}
	if c.client.ActiveConnection() != nil {
		// Fragments bound the size of etcd's messages. In process there are no messages,
		// and fragments cost several times the rest.
		options = append(options, clientv3.WithFragment())
	}
	return options
}

// receive applies one response, whose events are whole revisions, in order. It only
// decodes and publishes, since the client queues what arrives meanwhile without a bound.
func (c *Cache) receive(ctx context.Context, r *clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		return err
	}
	c.markHeard()
	snapshot := c.Snapshot()
	switch {
	case r.Header.ClusterId != c.store.Cluster:
		return errWentBack
	case r.Header.Revision < snapshot.Revision():
		// Either the store went back or this member lags.
		if _, err := c.recognise(ctx); errors.Is(err, errWentBack) {
			return err
		}
	case r.IsProgressNotify() && r.Header.Revision > snapshot.Revision():
		c.Publish(snapshot.Next(r.Header.Revision, snapshot.Content()))
	}
	c.raiseKnown(r.Header.Revision)
	entries := c.readEvents(r.Events)
	for rest := r.Events; len(rest) > 0; {
		n := sameRevision(rest)
		c.apply(rest[:n], entries[:n])
		rest, entries = rest[n:], entries[n:]
	}
	return nil
}

// sameRevision counts the leading events of one revision.
func sameRevision(events []*clientv3.Event) int {
	n := 1
	for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
		n++
	}
	return n
}

// apply publishes one revision, unless the cache already has it.
func (c *Cache) apply(events []*clientv3.Event, entries []entry) {
	revision, snapshot := events[0].Kv.ModRevision, c.Snapshot()
	if revision <= snapshot.Revision() {
		return
	}
	content := snapshot.Content()
	for i, e := range events {
		c.change(&content, e, entries[i])
	}
	c.Publish(snapshot.Next(revision, content))
}

func (c *Cache) change(content *cache.Content, e *clientv3.Event, put entry) {
	path := strings.TrimPrefix(string(e.Kv.Key), etcd.MeshPrefix)
	tree := treeAt(path)
	if tree == nil {
		return
	}
	if c.Quarantine().Len() > 0 || put.fault != nil {
		c.changeQuarantine(string(e.Kv.Key), put.fault, tree.get(content, path) != nil)
	}
	if e.Type == clientv3.EventTypeDelete {
		c.versions.remove(path)
		tree.remove(content, path)
		return
	}
	if put.path == "" {
		return
	}
	c.versions.set(put.path, put.version)
	if put.version.broken || put.value == nil {
		return
	}
	// put was decoded before the preceding events were applied, so one of them may have
	// set an equal value.
	if held := tree.get(content, path); held == nil || !tree.same(held, put.value) {
		tree.set(content, path, put.value)
	}
}
