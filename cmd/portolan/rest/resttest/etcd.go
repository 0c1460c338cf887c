package resttest

import (
	"context"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// OnEtcd is a store in an etcd of its own, with the caches that follow it.
type OnEtcd struct {
	Client   *clientv3.Client
	Store    *etcd.Store
	Mirror   *mirror.Cache
	Statuses *statuses.Cache // what servers and clients report, over Mirror
}

// StartEtcd starts the store and its caches, which have read it. They end with the test. It sets the
// schemas and the timeout of the options.
func StartEtcd(t testing.TB, o etcd.Options) OnEtcd {
	t.Helper()
	o.Schemas, o.RequestTimeout = schema.Pilot(), time.Minute
	client := etcdtest.Start(t)
	store, err := etcd.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	worker := cache.NewWorker()
	base := mirror.New(client, mirror.Options{Worker: worker, Schemas: o.Schemas, Store: store})
	merged := statuses.New(client, statuses.Options{Base: base, Schemas: o.Schemas})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{worker.Run, base.Run, merged.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if _, err := merged.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return OnEtcd{client, store, base, merged}
}
