package etcd_test

import (
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// TestNotes: a note is in the history, changes no configuration, and does not prevent
// reading the past of objects.
func TestNotes(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	now := time.Now()
	store := open(t, client, func(o *etcd.Options) { o.Now = func() time.Time { return now } })
	first := create(t, store, entry("a", "1"))
	made := config.Key{Kind: config.GroupVersionKind{Group: "portolan.io", Version: "v1", Kind: "Certificate"}, Namespace: "shop", Name: "web"}
	at := now.Add(-time.Hour).Truncate(time.Millisecond)
	if err := store.Note(t.Context(), at, storage.Origin{User: "web", Message: "serial 1"}, []config.Key{made}); err != nil {
		t.Fatal(err)
	}
	records, err := store.Records(t.Context(), storage.Query{Limit: 1})
	if err != nil || len(records) != 1 || records[0].Origin.Message != "serial 1" || !records[0].Time.Equal(at) || len(records[0].Changes) != 1 || records[0].Changes[0].Key.String() != made.String() {
		t.Fatalf("records %+v, %v", records, err)
	}
	last, err := store.Update(t.Context(), entry("a", "2"))
	if err != nil {
		t.Fatal(err)
	}
	compact(t, client, last)
	objects, err := store.At(t.Context(), first, storage.Selection{})
	if err != nil || len(objects) != 1 || host(objects[0]) != "1" {
		t.Errorf("at %s: %v, %v", first, objects, err)
	}
	if n, err := store.Prune(t.Context(), storage.Retention{Keep: 1, Deleted: 2 * time.Hour}); n != 0 || err != nil {
		t.Errorf("%d pruned too early, %v", n, err)
	}
	if n, err := store.Prune(t.Context(), storage.Retention{Keep: 9, Deleted: time.Minute}); n != 1 || err != nil {
		t.Errorf("%d pruned, %v", n, err)
	}
}
