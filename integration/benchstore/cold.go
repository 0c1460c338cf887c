package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// few is the number of objects in the small cache.
	few = 1000
	// coldPairs is how often each side lists everything.
	coldPairs = 7
	// plainPage is the page size of the plain list. The cost of small pages is quadratic.
	plainPage = 10_000
)

// measureCache fills the store in two steps and measures the cache after each.
func measureCache(ctx context.Context, b *bench) error {
	s, err := store(b.ours)
	if err != nil {
		return err
	}
	if err := fill(ctx, s, 0, few); err != nil {
		return err
	}
	small, err := b.costOfChange(ctx)
	if err != nil {
		return err
	}
	if err := fill(ctx, s, few, b.objects); err != nil {
		return err
	}
	if err := errors.Join(b.cold(ctx), b.memory(ctx), b.visible(ctx)); err != nil {
		return err
	}
	large, err := b.costOfChange(ctx)
	if err != nil {
		return err
	}
	b.compareCosts(small, large)
	return nil
}

// cache runs a mirror until the caller calls stop. It returns the mirror when it has synced.
func (b *bench) cache(ctx context.Context) (c *mirror.Cache, stop func() error, err error) {
	worker := cache.NewWorker()
	c = mirror.New(b.ours, mirror.Options{Worker: worker, Schemas: schema.Pilot(), Domain: "cluster.local"})
	ctx, cancel := context.WithCancel(ctx)
	var running errgroup.Group
	running.Go(func() error { return worker.Run(ctx) })
	running.Go(func() error { return c.Run(ctx) })
	stop = func() error { cancel(); return running.Wait() }
	for !c.HasSynced() {
		if ctx.Err() != nil {
			return nil, nil, errors.Join(ctx.Err(), stop())
		}
		time.Sleep(200 * time.Microsecond)
	}
	return c, stop, nil
}

// cold compares an empty cache's first sync with a plain list and decode.
func (b *bench) cold(ctx context.Context) error {
	size, objects, err := b.total(ctx)
	if err != nil {
		return err
	}
	b.note("the cache holds %d objects of %d bytes on average, keys included", objects, size/objects)
	way, err := b.fasterList(ctx)
	if err != nil {
		return err
	}
	plain := func() (float64, error) {
		runtime.GC()
		begin := time.Now()
		kept, err := listAndDecode(ctx, b.plain, way.list)
		took := time.Since(begin)
		if err == nil && kept != objects {
			err = fmt.Errorf("listed %d of %d objects", kept, objects)
		}
		return float64(took), err
	}
	ours := func() (float64, error) {
		runtime.GC()
		begin := time.Now()
		c, stop, err := b.cache(ctx)
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		if n := c.Snapshot().Configs().Len(); n != objects {
			err = fmt.Errorf("the cache has %d of %d objects", n, objects)
		}
		return float64(took), errors.Join(err, stop())
	}
	result, err := compare(coldPairs, plain, ours)
	if err != nil {
		return err
	}
	seconds := func(nanoseconds float64) string { return fmt.Sprintf("%.2f s", nanoseconds/1e9) }
	b.add(line{fmt.Sprintf("%d objects from cold", objects), seconds(result.plain) + ", " + way.name, seconds(result.portolan), result.ratio, limit{ratio: 1.5}})
	return nil
}

// total returns the number of objects in etcd, and their size.
func (b *bench) total(ctx context.Context) (bytes, objects int, err error) {
	err = byStream(ctx, b.plain, func(kvs []*mvccpb.KeyValue) {
		for _, kv := range kvs {
			bytes += len(kv.Key) + len(kv.Value)
		}
		objects += len(kvs)
	})
	return bytes, max(objects, 1), err
}

// lister passes all pairs of the configuration to each, in order.
type lister func(ctx context.Context, client *clientv3.Client, each func([]*mvccpb.KeyValue)) error

// way is one way to list.
type way struct {
	name string
	list lister
}

// fasterList returns the faster way to list, by the best of three.
func (b *bench) fasterList(ctx context.Context) (way, error) {
	ways := []way{{"streamed", byStream}, {"paged", byPages}}
	best := [2]time.Duration{}
	for round := range 3 {
		for i, w := range ways {
			begin := time.Now()
			if _, err := listAndDecode(ctx, b.plain, w.list); err != nil {
				return way{}, err
			}
			if took := time.Since(begin); round == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	if best[1] < best[0] {
		return ways[1], nil
	}
	return ways[0], nil
}

func byStream(ctx context.Context, client *clientv3.Client, each func([]*mvccpb.KeyValue)) (err error) {
	pieces, err := client.GetStream(ctx, etcd.MeshPrefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for piece := range pieces { // read to the end, since the sender waits for that
		if piece.Err() != nil {
			err = piece.Err()
		} else {
			each(piece.Kvs)
		}
	}
	return err
}

func byPages(ctx context.Context, client *clientv3.Client, each func([]*mvccpb.KeyValue)) error {
	for from, revision := etcd.MeshPrefix, int64(0); ; {
		page, err := client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(etcd.MeshPrefix)),
			clientv3.WithLimit(plainPage), clientv3.WithRev(revision))
		if err != nil {
			return err
		}
		if each(page.Kvs); !page.More {
			return nil
		}
		from, revision = string(page.Kvs[len(page.Kvs)-1].Key)+"\x00", page.Header.Revision
	}
}

// listAndDecode lists the pairs, decodes them on all cores as they come, and keeps only the
// objects. An empty cache has to do at least this. It returns the number of objects.
func listAndDecode(ctx context.Context, client *clientv3.Client, list lister) (int, error) {
	cores := runtime.GOMAXPROCS(0)
	work, schemas := make(chan []*mvccpb.KeyValue, 8*cores), schema.Pilot()
	var decoding errgroup.Group
	var mu sync.Mutex // guards total
	total := 0
	for range cores {
		decoding.Go(func() (err error) {
			var kept []*config.Config
			for kvs := range work {
				for _, kv := range kvs {
					object, wrong := etcd.Decode(kv, schemas, "cluster.local")
					if wrong != nil {
						err = wrong
						continue
					}
					kept = append(kept, object)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total += len(kept)
			return err
		})
	}
	err := list(ctx, client, func(kvs []*mvccpb.KeyValue) {
		for from := 0; from < len(kvs); from += 128 {
			work <- kvs[from:min(from+128, len(kvs))]
		}
	})
	close(work)
	return total, errors.Join(err, decoding.Wait())
}

// memory measures the size of a cached object: the heap in use with the cache, minus that
// without.
func (b *bench) memory(ctx context.Context) error {
	before := heap()
	c, stop, err := b.cache(ctx)
	if err != nil {
		return err
	}
	grown, objects := heap()-before, c.Snapshot().Configs().Len()
	b.add(line{what: fmt.Sprintf("memory of a cached object, %d of them", objects), portolan: fmt.Sprintf("%.0f bytes", float64(grown)/float64(objects))})
	runtime.KeepAlive(c)
	return stop()
}

// heap returns the heap in use after garbage collection.
func heap() int64 {
	var m runtime.MemStats
	for range 3 { // objects with finalizers take more than one
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
