package mirror

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// batchSize is how many values one goroutine decodes at a time.
const batchSize = 128

// entry is one key of a tree, decoded.
type entry struct {
	path    string // empty for a foreign key
	version version
	// value is the last good value if decoding failed, or nil.
	value any
	// fault says why decoding failed; nil if it did not.
	fault *Quarantined
}

// version identifies the stored value that the cache last saw under a key. Equal
// versions have the same bytes and the same revision.
type version struct {
	revision int64
	sum      uint64
	broken   bool // the value cannot be decoded
}

// If content has the same version, the entry has the same pointer, so that no difference
// is seen. read returns false for a key outside the trees.
func (c *Cache) read(kv *mvccpb.KeyValue, content *cache.Content) (entry, bool) {
	path := strings.TrimPrefix(string(kv.Key), etcd.MeshPrefix)
	tree := treeAt(path)
	if tree == nil {
		return entry{}, false
	}
	e := entry{path: path, version: version{revision: kv.ModRevision, sum: maphash.Bytes(c.seed, kv.Value)}}
	known, seen := c.versions.get(path)
	unchanged := seen && known.revision == e.version.revision && known.sum == e.version.sum
	held := tree.get(content, path)
	if unchanged && !known.broken && held != nil && isOf(held, kv.ModRevision) {
		e.value = held
		return e, true
	}
	value, err := tree.decode(c, kv)
	switch {
	case err == nil:
		e.value = value
		if held != nil && tree.same(held, value) {
			e.value = held
		}
	case errors.Is(err, etcd.ErrForeignKey):
		return entry{fault: quarantined(kv, err)}, true
	default:
		e.value, e.version.broken, e.fault = held, true, quarantined(kv, err)
		if !unchanged {
			c.o.Log.Error("a value in etcd cannot be decoded: the last good one goes on serving; apply it again or delete it",
				"key", string(kv.Key), "revision", kv.ModRevision, "err", err)
		}
	}
	return e, true
}

// quarantined makes the quarantine entry of a pair that cannot be decoded.
func quarantined(kv *mvccpb.KeyValue, err error) *Quarantined {
	out := &Quarantined{Key: string(kv.Key), Revision: kv.ModRevision, Size: len(kv.Value)}
	if !errors.As(err, &out.Fault) {
		out.Fault = &etcd.Fault{Key: out.Key, Revision: out.Revision, Class: etcd.ErrUndecodable, Why: err.Error()}
	}
	return out
}

// readEvents decodes the puts among events; each entry has the index of its event. Many
// events are decoded on all cores.
func (c *Cache) readEvents(events []*clientv3.Event) []entry {
	entries := make([]entry, len(events))
	content := c.Snapshot().Content()
	fill := func(from, to int) {
		for i, e := range events[from:to] {
			if e.Type == clientv3.EventTypePut {
				entries[from+i], _ = c.read(e.Kv, &content)
			}
		}
	}
	if len(events) <= batchSize {
		fill(0, len(events))
		return entries
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(events); from += batchSize {
		group.Go(func() error {
			fill(from, min(from+batchSize, len(events)))
			return nil
		})
	}
	_ = group.Wait() // none fails
	return entries
}

// batch is a run of pairs that one goroutine decodes.
type batch struct {
	kvs     []*mvccpb.KeyValue
	entries []entry
	done    chan struct{} // closed when entries is set
}

// readAll decodes the pairs from scan on all cores, and keeps their order. It holds a
// few batches for each core, whatever the total: scan waits for the consumer of entries,
// which must consume them all. wait then returns the error of scan.
func (c *Cache) readAll(ctx context.Context, scan func(ctx context.Context, each pairs) error) (entries iter.Seq[entry], wait func() error) {
	cores := runtime.GOMAXPROCS(0)
	group, ctx := errgroup.WithContext(ctx)
	work, ordered := make(chan *batch), make(chan *batch, 8*cores)
	content := c.Snapshot().Content()
	group.Go(func() error {
		defer close(ordered)
		defer close(work)
		return scan(ctx, func(kvs []*mvccpb.KeyValue) error {
			for part := range slices.Chunk(kvs, batchSize) {
				b := &batch{kvs: part, done: make(chan struct{})}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case ordered <- b:
					work <- b // a decoder always receives it
				}
			}
			return nil
		})
	})
	for range cores {
		group.Go(func() error {
			for b := range work {
				c.readBatch(b, &content)
			}
			return nil
		})
	}
	return func(yield func(entry) bool) {
		for b := range ordered {
			<-b.done
			for _, e := range b.entries {
				yield(e)
			}
		}
	}, group.Wait
}

func (c *Cache) readBatch(b *batch, content *cache.Content) {
	defer close(b.done)
	b.entries = make([]entry, 0, len(b.kvs))
	for _, kv := range b.kvs {
		if e, ok := c.read(kv, content); ok {
			b.entries = append(b.entries, e)
		}
	}
	b.kvs = nil
}

// versions holds the version of every value of the trees, by path. The goroutine of
// Run writes it, others read it.
type versions struct {
	mu     sync.RWMutex // guards the fields below
	byPath map[string]version
}

func (v *versions) get(path string) (version, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	found, ok := v.byPath[path]
	return found, ok
}

func (v *versions) set(path string, to version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byPath[path] = to
}

func (v *versions) remove(path string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byPath, path)
}

func (v *versions) replace(all []entry) {
	byPath := make(map[string]version, len(all))
	for _, one := range all {
		byPath[one.path] = one.version
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byPath = byPath
}
