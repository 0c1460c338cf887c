package mirror_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// full is a cache of n objects without an etcd: a test gives it what an etcd would send.
type full struct {
	*mirror.Cache
	n        int
	revision int64
	handled  chan struct{} // by the handler, for the whole list and for each update
}

func newFull(t testing.TB, n int) *full {
	t.Helper()
	worker := cache.NewWorker()
	c := &full{
		Cache: mirror.New(nil, mirror.Options{Worker: worker, Schemas: schema.Pilot()}),
		n:     n, revision: 1, handled: make(chan struct{}, 1),
	}
	added := 0
	err := c.RegisterEventHandler(schema.ServiceEntry, func(_, _ *config.Config, event cache.Event) {
		if event == cache.EventAdd {
			added++
		}
		if event == cache.EventUpdate || added == n {
			added = 0
			c.handled <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	kvs := make([]*mvccpb.KeyValue, n)
	for i := range kvs {
		kvs[i] = c.pair(t, i, 1)
	}
	c.Begin(c.revision, kvs)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-c.handled
	return c
}

func (c *full) pair(t testing.TB, i int, revision int64) *mvccpb.KeyValue {
	object := cachetest.ServiceEntry(fmt.Sprintf("n%03d", i/1000), fmt.Sprintf("object-%06d", i), int(revision))
	value, err := etcd.Encode(object, make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	return &mvccpb.KeyValue{Key: []byte(etcd.ConfigKey(object.Key())), Value: value, ModRevision: revision}
}

// change changes one object, and waits until the handler has got it.
func (c *full) change(t testing.TB) {
	c.revision++
	err := c.Receive(t.Context(), &clientv3.WatchResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: c.revision},
		Events: []*clientv3.Event{{Type: clientv3.EventTypePut, Kv: c.pair(t, int(c.revision*7919)%c.n, c.revision)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	<-c.handled
}

// TestTheCostOfAChangeIsFlat: one change, from the watch to the handler,
// allocates about the same in a small cache and in a large one. Not parallel:
// it counts the allocations of the process.
func TestTheCostOfAChangeIsFlat(t *testing.T) {
	var allocations [2]float64
	for i, n := range []int{1_000, 100_000} {
		c := newFull(t, n)
		making := testing.AllocsPerRun(200, func() { c.pair(t, 0, 1) })
		allocations[i] = testing.AllocsPerRun(200, func() { c.change(t) }) - making
	}
	t.Logf("%.0f allocations among 1,000 objects, %.0f among 100,000", allocations[0], allocations[1])
	if allocations[1] > 2*allocations[0] {
		t.Errorf("a change allocates %.0f times among 1,000 objects and %.0f times among 100,000", allocations[0], allocations[1])
	}
}

func BenchmarkChange(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("among %d", n), func(b *testing.B) {
			c := newFull(b, n)
			b.ReportAllocs()
			for b.Loop() {
				c.change(b)
			}
		})
	}
}
