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
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// batchSize is how many values are decoded in one go.
const batchSize = 128

// entry is what one key of a tree holds.
type entry struct {
	path    string // empty for a foreign key
	version version
	// value is what it decodes to; for one that does not, the last good one, or
	// nil.
	value any
	// fault is what is wrong with it, nil for a sound one.
	fault *Quarantined
}

// version is a value in the store as the cache last saw it. Two that are equal
// are the same bytes of the same revision.
type version struct {
	revision int64
	sum      uint64
	broken   bool // the value cannot be decoded
}

// read makes the entry of a key and value. What snapshot holds of the same
// version stays the same pointer, so that the difference to it is nothing. It is
// false for a key outside the trees.
func (c *Cache) read(kv *mvccpb.KeyValue, snapshot *cache.Snapshot) (entry, bool) {
	path := strings.TrimPrefix(string(kv.Key), etcd.MeshPrefix)
	tree := treeAt(path)
	if tree == nil {
		return entry{}, false
	}
	e := entry{path: path, version: version{revision: kv.ModRevision, sum: maphash.Bytes(c.seed, kv.Value)}}
	known, seen := c.versions.get(path)
	unchanged := seen && known.revision == e.version.revision && known.sum == e.version.sum
	held := tree.get(snapshot.Content(), path)
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

// quarantined is a pair that is at fault.
func quarantined(kv *mvccpb.KeyValue, err error) *Quarantined {
	out := &Quarantined{Key: string(kv.Key), Revision: kv.ModRevision, Size: len(kv.Value)}
	if !errors.As(err, &out.Fault) {
		out.Fault = &etcd.Fault{Key: out.Key, Revision: out.Revision, Class: etcd.ErrUndecodable, Why: err.Error()}
	}
	return out
}

// same says whether two objects are one state of one incarnation.
func same(a, b *config.Config) bool {
	return a.ResourceVersion == b.ResourceVersion && a.UID == b.UID && a.Generation == b.Generation &&
		a.CreationTimestamp.Equal(b.CreationTimestamp) && config.SameContent(a, b)
}

// readEvents makes the entries of the puts among events, each at the place of
// its event; where there are many, on all cores.
func (c *Cache) readEvents(events []*clientv3.Event) []entry {
	entries := make([]entry, len(events))
	snapshot := c.Snapshot()
	fill := func(from, to int) {
		for i, e := range events[from:to] {
			if e.Type == clientv3.EventTypePut {
				entries[from+i], _ = c.read(e.Kv, snapshot)
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

// batch is a run of pairs on its way to entries.
type batch struct {
	kvs     []*mvccpb.KeyValue
	entries []entry
	done    chan struct{} // closed once entries are there
}

// readAll makes the entries of the pairs that scan gives, on all cores and in
// their order. It holds a few batches for each core and no more, whatever the
// size of the whole: scan waits for whoever takes the entries, which must be
// taken to their end. wait then returns the error of scan.
func (c *Cache) readAll(ctx context.Context, scan func(ctx context.Context, each pairs) error) (entries iter.Seq[entry], wait func() error) {
	cores := runtime.GOMAXPROCS(0)
	group, ctx := errgroup.WithContext(ctx)
	work, ordered := make(chan *batch), make(chan *batch, 8*cores)
	snapshot := c.Snapshot()
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
					work <- b // there is always one who takes it
				}
			}
			return nil
		})
	})
	for range cores {
		group.Go(func() error {
			for b := range work {
				c.readBatch(b, snapshot)
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

func (c *Cache) readBatch(b *batch, snapshot *cache.Snapshot) {
	defer close(b.done)
	b.entries = make([]entry, 0, len(b.kvs))
	for _, kv := range b.kvs {
		if e, ok := c.read(kv, snapshot); ok {
			b.entries = append(b.entries, e)
		}
	}
	b.kvs = nil
}

// versions are those of all values of the trees, by the path of the key. The
// goroutine of Run writes them, others may read.
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
