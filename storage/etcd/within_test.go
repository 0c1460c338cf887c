package etcd_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/storetest"
)

// TestConformanceWithin: a store within another one is a store like any other.
func TestConformanceWithin(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storage.ConfigStore {
		return open(t, etcd.Within(etcdtest.Start(t), etcd.ObjectsPrefix))
	})
}

// TestAStoreWithoutHistory: a store within another one writes under its prefix alone. Its batches
// leave nothing of who changed what, and what they leave goes.
func TestAStoreWithoutHistory(t *testing.T) {
	t.Parallel()
	ctx, client := storage.WithOrigin(t.Context(), storage.Origin{User: "anna", Tool: "kubectl"}), etcdtest.Start(t)
	now := time.Now()
	store, err := etcd.New(etcd.Within(client, etcd.ObjectsPrefix), etcd.Options{
		Schemas: schema.Side(), WithoutHistory: true, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Namespace, Name: "shop"}, Spec: &corev1.NamespaceSpec{}}
	revision, err := store.Create(ctx, namespace)
	if err != nil {
		t.Fatal(err)
	}
	namespace.Labels = map[string]string{"a": "b"}
	if _, err := store.Update(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	all, err := client.Get(t.Context(), etcd.Root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	for _, kv := range all.Kvs {
		within, ok := strings.CutPrefix(string(kv.Key), strings.TrimSuffix(etcd.ObjectsPrefix, "/"))
		if !ok {
			t.Errorf("%s is not under %s", kv.Key, etcd.ObjectsPrefix)
		}
		if strings.HasPrefix(within, etcd.HistoryPrefix) {
			if records++; len(kv.Value) > 40 || strings.Contains(string(kv.Value), "anna") {
				t.Errorf("the record of a batch holds %q", kv.Value)
			}
		}
	}
	if records != 2 {
		t.Errorf("%d records, want one for each batch", records)
	}
	changes, err := store.History(ctx, namespace.Key(), 0)
	if err != nil || len(changes) != 0 {
		t.Errorf("the history has %v, %v", changes, err)
	}
	if removed, err := store.Prune(ctx, storage.Retention{Keep: 1}); err != nil || removed != 0 {
		t.Errorf("%d records were removed at once, %v", removed, err)
	}
	now = now.Add(storage.HistoryGrace)
	if removed, err := store.Prune(ctx, storage.Retention{Keep: 1}); err != nil || removed != 2 {
		t.Errorf("%d records were removed, want 2; %v", removed, err)
	}
	if kept, err := store.Get(ctx, schema.Namespace, "shop", ""); err != nil || kept.Labels["a"] != "b" || kept.ResourceVersion == revision {
		t.Errorf("%+v, %v", kept, err)
	}
	if _, err := client.Delete(t.Context(), etcd.Root, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(ctx, namespace); err != nil {
		t.Errorf("after it was emptied: %v", err)
	}
}

// TestProgressOfAStoreIsItsOwn: etcd answers a request for progress once it has reached the begin of
// every watch of a stream. A watch of a store within, which begins at what that has listed, keeps no
// other store from its progress.
func TestProgressOfAStoreIsItsOwn(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	within := etcd.Within(client, etcd.ObjectsPrefix)
	ctx := clientv3.WithRequireLeader(t.Context())
	first, err := client.Put(ctx, "/elsewhere", "")
	if err != nil {
		t.Fatal(err)
	}
	watch := client.Watch(ctx, etcd.MeshPrefix, clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision+1), clientv3.WithCreatedNotify())
	<-watch
	second, err := client.Put(ctx, "/elsewhere", "again")
	if err != nil {
		t.Fatal(err)
	}
	<-within.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(second.Header.Revision+1), clientv3.WithCreatedNotify())
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for until := time.After(10 * time.Second); ; {
		select {
		case answer := <-watch:
			if answer.IsProgressNotify() && answer.Header.Revision >= second.Header.Revision {
				return
			}
		case <-again.C:
			if err := client.RequestProgress(ctx); err != nil {
				t.Fatal(err)
			}
		case <-until:
			t.Fatal("no progress came")
		}
	}
}
