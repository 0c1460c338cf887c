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
)

// errWatchEnded: etcd closed the watch and did not say why.
var errWatchEnded = errors.New("the watch ended")

// follow watches, and watches again from where it stopped, until ctx ends or
// only a new list can help; the error says why.
func (c *Cache) follow(ctx context.Context, retry *pause) error {
	for {
		err := c.watch(ctx, retry)
		if ctx.Err() != nil || errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, errWentBack) || errors.Is(err, errDiverged) {
			return err
		}
		c.o.Log.Warn("the watch of etcd was cut, watching again", "err", err, "revision", c.Snapshot().Revision())
		retry.wait(ctx)
	}
}

// watch receives until the watch ends. A connection that is cut does not end
// it: the client resumes by itself.
func (c *Cache) watch(ctx context.Context, retry *pause) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel(nil)
	responses := c.client.Watch(ctx, etcd.MeshPrefix, c.watchOptions()...)
	beside.Go(func() { c.ask(ctx, cancel) })
	if c.o.CheckInterval > 0 {
		beside.Go(func() { c.check(ctx, cancel) })
	}
	for response := range responses {
		if err := c.receive(ctx, &response); err != nil {
			return err
		}
		retry.reset()
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
		// Bounds the messages of etcd. In process there are none, and fragments
		// cost several times the rest.
		options = append(options, clientv3.WithFragment())
	}
	return options
}

// receive takes in one response. Its events are whole revisions, in order.
// Nothing is done here but to decode and publish: what comes meanwhile is kept
// by the client, without a bound.
func (c *Cache) receive(ctx context.Context, r *clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		return err
	}
	c.hear()
	snapshot := c.Snapshot()
	switch {
	case r.Header.ClusterId != c.store.Cluster:
		return errWentBack
	case r.Header.Revision < snapshot.Revision():
		// Either the store went back or this is a member that lags.
		if _, err := c.recognise(ctx); errors.Is(err, errWentBack) {
			return err
		}
	case r.IsProgressNotify() && r.Header.Revision > snapshot.Revision():
		c.Publish(snapshot.Next(r.Header.Revision, snapshot.Content()))
	}
	c.saw(r.Header.Revision)
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

// apply publishes one revision. One that the cache has already is passed over.
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

// change makes content what it is after an event.
func (c *Cache) change(content *cache.Content, e *clientv3.Event, put entry) {
	path := strings.TrimPrefix(string(e.Kv.Key), etcd.MeshPrefix)
	tree := treeAt(path)
	if tree == nil {
		return
	}
	if c.Quarantine().Len() > 0 || put.fault != nil {
		c.changeQuarantine(string(e.Kv.Key), put.fault, tree.get(*content, path) != nil)
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
	// Read before this, put may be a copy of what an event since has made equal.
	if held := tree.get(*content, path); held == nil || !tree.same(held, put.value) {
		tree.set(content, path, put.value)
	}
}
