package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

const (
	// shownKeys is how many differing keys the log names.
	shownKeys = 5
	// checkAttempts is how often a check is tried if etcd has compacted the revision of
	// the cache.
	checkAttempts = 3
)

var errDiverged = errors.New("the cache differs from the store at the same revision")

// check compares the cache with the store until ctx ends: keys and their revisions
// every CheckInterval, and values too after the connection was lost. A restored
// store behind the new connection may have reused the same revisions. A difference
// ends the watch.
func (c *Cache) check(ctx context.Context, cancel context.CancelCauseFunc) {
	values := false
	timer := time.NewTimer(c.untilCheck())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.reconnected:
			values = true
		case <-timer.C:
		}
		err := c.compare(ctx, values)
		switch {
		case errors.Is(err, errDiverged), errors.Is(err, errWentBack):
			cancel(err)
			return
		case err != nil:
			c.metrics.checks.WithLabelValues(checkFailed).Inc()
			c.o.Log.Debug("the cache cannot be compared with the store", "err", err)
		default:
			c.metrics.checks.WithLabelValues(checkEqual).Inc()
		}
		if err != nil && values {
			timer.Reset(c.o.RetryMax)
			continue
		}
		values = false
		timer.Reset(c.untilCheck())
	}
}

// untilCheck returns a random time around CheckInterval, so that replicas do not check
// all at once.
func (c *Cache) untilCheck() time.Duration {
	return c.o.CheckInterval - c.o.CheckInterval/10 + rand.N(c.o.CheckInterval/5+1)
}

// compare compares twice before it returns errDiverged: an event that arrives in
// between can falsify one comparison.
func (c *Cache) compare(ctx context.Context, values bool) error {
	if _, err := c.recognise(ctx); err != nil {
		return err
	}
	first, err := c.differences(ctx, values)
	if err != nil || len(first) == 0 {
		return err
	}
	second, err := c.differences(ctx, values)
	if err != nil {
		return err
	}
	var shown []string
	confirmed := 0
	for path, what := range second {
		if _, ok := first[path]; !ok {
			continue
		}
		if confirmed++; len(shown) < shownKeys {
			shown = append(shown, what)
		}
	}
	if confirmed == 0 {
		return nil
	}
	c.metrics.checks.WithLabelValues(checkDifferent).Inc()
	c.o.Log.Error("the cache differs from the store, it is listed anew: unless the store was restored or has lost writes, please report this",
		"revision", c.Snapshot().Revision(), "differences", confirmed, "first", strings.Join(shown, ", "))
	return fmt.Errorf("%w: %d keys, such as %s", errDiverged, confirmed, strings.Join(shown, ", "))
}

// differences returns how a snapshot of the cache differs from the store at the same
// revision, by path.
func (c *Cache) differences(ctx context.Context, values bool) (map[string]string, error) {
	for attempt := 1; ; attempt++ {
		d := &difference{cache: c, snapshot: c.Snapshot(), values: values, found: map[string]string{}}
		err := d.find(ctx)
		switch {
		case errors.Is(err, rpctypes.ErrFutureRev):
			return nil, fmt.Errorf("%w: it is older than revision %d", errWentBack, d.snapshot.Revision())
		case errors.Is(err, rpctypes.ErrCompacted) && attempt < checkAttempts:
			continue
		}
		return d.found, err
	}
}

// difference is one comparison: it merges two ordered sequences of keys.
type difference struct {
	cache    *Cache
	snapshot *cache.Snapshot
	values   bool
	found    map[string]string // by path

	next  func() (string, any, bool) // values of the snapshot
	path  string
	value any
	more  bool
}

func (d *difference) find(ctx context.Context) error {
	content := d.snapshot.Content()
	next, stop := iter.Pull2(allValues(&content))
	defer stop()
	d.next = next
	d.advance()
	_, err := d.cache.scan(ctx, etcd.Range{Prefix: etcd.MeshPrefix, Revision: d.snapshot.Revision(), KeysOnly: !d.values}, d.take)
	if err != nil {
		return err
	}
	for d.more {
		d.onlyInCache()
	}
	return nil
}

func (d *difference) advance() { d.path, d.value, d.more = d.next() }

func (d *difference) take(kvs []*mvccpb.KeyValue) error {
	for _, kv := range kvs {
		path := strings.TrimPrefix(string(kv.Key), etcd.MeshPrefix)
		tree := treeAt(path)
		if tree == nil {
			continue
		}
		for d.more && d.path < path {
			d.onlyInCache()
		}
		var held any
		if d.more && d.path == path {
			held = d.value
			d.advance()
		}
		d.pair(tree, path, kv, held)
	}
	return nil
}

func (d *difference) onlyInCache() {
	d.add(d.path, "not in the store, in the cache at "+d.revisionOf(d.path, d.value))
	d.advance()
}

// revisionOf returns the mod revision of a cached value, "0" if it is unknown.
func (d *difference) revisionOf(path string, value any) string {
	if object, ok := value.(*config.Config); ok {
		return object.ResourceVersion
	}
	known, _ := d.cache.versions.get(path)
	return strconv.FormatInt(known.revision, 10)
}

// pair compares a value of the store with the one in the cache, nil for none.
func (d *difference) pair(tree *tree, path string, kv *mvccpb.KeyValue, held any) {
	known, ok := d.cache.versions.get(path)
	switch {
	case ok && known.revision > d.snapshot.Revision():
		return // it has changed since: the cache no longer knows the compared value
	case ok && known.broken && known.revision == kv.ModRevision:
		return
	case held != nil && d.revisionOf(path, held) == strconv.FormatInt(kv.ModRevision, 10):
		if d.values && ok && known.revision == kv.ModRevision && known.sum != maphash.Bytes(d.cache.seed, kv.Value) {
			d.add(path, fmt.Sprintf("the value of revision %d is another", kv.ModRevision))
		}
		return
	case held != nil:
		d.add(path, fmt.Sprintf("in the store at %d, in the cache at %s", kv.ModRevision, d.revisionOf(path, held)))
		return
	}
	if _, err := tree.decode(d.cache, &mvccpb.KeyValue{Key: kv.Key}); !errors.Is(err, etcd.ErrForeignKey) {
		d.add(path, fmt.Sprintf("in the store at %d, not in the cache", kv.ModRevision))
	}
}

func (d *difference) add(path, what string) { d.found[path] = path + ": " + what }
