package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

var (
	// errWentBack: the store is at an older revision than the cache, or is
	// another one.
	errWentBack = errors.New("the store in etcd is not the one this cache was read from, or went back to an older revision")
	// errSilent: the store has newer revisions and the watch does not say so.
	errSilent = errors.New("the watch went silent")
	// errWatchEnded: etcd closed the watch and did not say why.
	errWatchEnded = errors.New("the watch ended")
)

// follow watches, and watches again from where it stopped, until ctx ends or
// only a new list can help; the error says why.
func (c *Cache) follow(ctx context.Context, retry *pause) error {
	for {
		err := c.watch(ctx, retry)
		if ctx.Err() != nil || errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, errWentBack) {
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
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel(nil)
	responses := c.client.Watch(ctx, etcd.MeshPrefix, clientv3.WithPrefix(),
		clientv3.WithRev(c.Snapshot().Revision()+1),
		clientv3.WithProgressNotify(), clientv3.WithCreatedNotify(), clientv3.WithFragment())
	asking.Go(func() { c.ask(ctx, cancel) })
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

// receive takes in one response. Its events are whole revisions, in order.
func (c *Cache) receive(ctx context.Context, r *clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		return err
	}
	c.hear()
	revision := c.Snapshot().Revision()
	switch {
	case r.Header.ClusterId != c.cluster:
		return errWentBack
	case r.Header.Revision < revision:
		// Either the store went back or this is a member that lags.
		if err := c.compare(ctx); errors.Is(err, errWentBack) {
			return err
		}
	case r.IsProgressNotify() && r.Header.Revision > revision:
		c.Publish(cache.NewSnapshot(r.Header.Revision, c.Snapshot().Configs()))
	}
	for rest := r.Events; len(rest) > 0; {
		n := sameRevision(rest)
		c.apply(rest[:n])
		rest = rest[n:]
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
func (c *Cache) apply(events []*clientv3.Event) {
	revision, snapshot := events[0].Kv.ModRevision, c.Snapshot()
	if revision <= snapshot.Revision() {
		return
	}
	configs := snapshot.Configs()
	for _, e := range events {
		configs = c.change(configs, e)
	}
	c.Publish(cache.NewSnapshot(revision, configs))
}

func (c *Cache) change(configs pmap.Map[*config.Config], e *clientv3.Event) pmap.Map[*config.Config] {
	path, ok := strings.CutPrefix(string(e.Kv.Key), etcd.ConfigPrefix)
	if !ok {
		return configs
	}
	if e.Type == clientv3.EventTypeDelete {
		delete(c.broken, string(e.Kv.Key))
		return configs.Delete(path)
	}
	object := c.decode(e.Kv)
	if object == nil {
		return configs
	}
	return configs.Set(path, object)
}

// ask asks etcd for its revision again and again, which comes back as a
// progress mark of the watch. Where the watch stays silent, ask looks for
// itself, and ends a watch that has something to tell and does not.
func (c *Cache) ask(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(c.o.ProgressInterval)
	defer ticker.Stop()
	suspect := int64(-1) // where the cache stood when the watch was found silent
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c.requestProgress(ctx)
		if c.o.Now().Sub(c.LastHeard()) < 2*c.o.ProgressInterval {
			continue
		}
		err := c.compare(ctx)
		if stands := c.Snapshot().Revision(); errors.Is(err, errSilent) && suspect != stands {
			suspect = stands // what was missing may be on its way: look once more
			continue
		}
		if err != nil {
			cancel(err)
		}
	}
}

// requestProgress must be called with a context of the watch: only the stream
// of the same metadata is asked. While there is no connection the call waits.
func (c *Cache) requestProgress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.o.ProgressInterval)
	defer cancel()
	if err := c.client.RequestProgress(ctx); err != nil {
		c.o.Log.Debug("etcd cannot be asked for its progress", "err", err)
	}
}

// compare reads the revision of the store, by quorum. A cache that is at the
// same one is as good as told so: etcd sends no progress mark while nothing was
// written since the watch began. The error is errWentBack where the cache is
// ahead, errSilent where it is behind.
func (c *Cache) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	seen := c.Snapshot().Revision()
	r, err := c.client.Get(ctx, etcd.MeshPrefix)
	switch {
	case err != nil:
		c.o.Log.Debug("etcd cannot be asked for its revision", "err", err)
	case r.Header.Revision < seen:
		return fmt.Errorf("%w: it is at %d, the cache at %d", errWentBack, r.Header.Revision, seen)
	case r.Header.Revision > seen:
		return fmt.Errorf("%w: the store is at %d, the cache at %d", errSilent, r.Header.Revision, seen)
	default:
		c.hear()
	}
	return nil
}
