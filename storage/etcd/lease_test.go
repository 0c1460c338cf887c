package etcd_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

func grant(t testing.TB, s *etcd.Store) storage.LeaseID {
	t.Helper()
	lease, err := s.Grant(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func revoke(t testing.TB, s *etcd.Store, lease storage.LeaseID) {
	t.Helper()
	if err := s.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

func putUnder(t testing.TB, s *etcd.Store, lease storage.LeaseID, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, _, err := s.Apply(t.Context(), []storage.Op{{Verb: storage.Put, Config: workload(name), Lease: lease}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHealthGoesWithTheLease: the health of an object is under its lease, also after a new
// holder has taken the object over.
func TestHealthGoesWithTheLease(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	first, second := grant(t, store), grant(t, store)
	putUnder(t, store, first, "early", "moved", "late")
	report(t, store, "early", probe(true, 0))
	report(t, store, "moved", probe(true, 0))
	putUnder(t, store, second, "moved", "late")
	report(t, store, "late", probe(true, 0))
	revoke(t, store, first)
	for name, there := range map[string]bool{"early": false, "moved": true, "late": true} {
		if got := healthIn(t, client, name); (got != nil) != there {
			t.Errorf("%s: after the end of the first lease the health is %v", name, got)
		}
	}
	if got := healthIn(t, client, "moved"); got == nil || !got.Healthy {
		t.Errorf("the health that moved is %v", got)
	}
	revoke(t, store, second)
	for _, name := range []string{"moved", "late"} {
		if got := healthIn(t, client, name); got != nil {
			t.Errorf("%s: after the end of the lease the health is %v", name, got)
		}
	}
}

// recordLeases runs RecordLeases until the returned function is called, or until it has recorded
// as many objects as wanted.
func recordLeases(t *testing.T, store *etcd.Store, wanted int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, enough := make(chan error, 1), make(chan struct{})
	go func() {
		done <- store.RecordLeases(ctx, func(objects int) {
			if wanted -= objects; wanted == 0 {
				close(enough)
			}
		})
	}()
	return func() {
		t.Helper()
		select {
		case <-enough:
		case err := <-done:
			t.Fatalf("RecordLeases returned %v", err)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("RecordLeases returned no error")
		}
	}
}

// TestTheEndOfALeaseIsRecorded: each end has one record, of the revision of the deletion, also if
// nobody was there to write it. Objects that somebody deleted or took over are not in it.
func TestTheEndOfALeaseIsRecorded(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	first := grant(t, store)
	putUnder(t, store, first, "a")
	stop := recordLeases(t, store, 1)
	awaitCursor(t, client)
	revoke(t, store, first)
	stop()

	second, third := grant(t, store), grant(t, store)
	putUnder(t, store, second, "a", "b", "deleted", "moved", "remade")
	putUnder(t, store, third, "moved")
	for _, name := range []string{"deleted", "remade"} {
		if _, err := store.Delete(t.Context(), workload(name).GroupVersionKind, name, "shop", ""); err != nil {
			t.Fatal(err)
		}
	}
	create(t, store, workload("remade"))
	revoke(t, store, second)
	if _, err := store.List(t.Context(), workload("a").GroupVersionKind, ""); err != nil {
		t.Fatal(err)
	}
	ended := store.Version()
	create(t, store, workload("later"))
	recordLeases(t, store, 2)()

	records, err := store.Records(t.Context(), storage.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var ends []storage.Record
	for _, r := range records {
		if r.Origin == storage.LeaseOrigin() {
			ends = append(ends, r)
		}
	}
	if len(ends) != 2 {
		t.Fatalf("there are %d records of ends: %+v", len(ends), ends)
	}
	var names []string
	for _, c := range ends[0].Changes {
		names = append(names, c.Key.Name)
		if c.Outcome != storage.Deleted || c.Before.Spec.(*networking.WorkloadEntry).GetAddress() != "10.0.0.1" || c.After != nil {
			t.Errorf("the change is %+v", c)
		}
	}
	if !slices.Equal(names, []string{"a", "b"}) || ends[0].Revision != ended {
		t.Errorf("the newest record is of %v at %s, want a and b at %s", names, ends[0].Revision, ended)
	}
	history, err := store.History(t.Context(), workload("a").Key(), 0)
	if err != nil || len(history) != 4 || history[0].Outcome != storage.Deleted || history[1].After == nil {
		t.Errorf("the history of a is %+v, %v", history, err)
	}
	at, err := store.At(t.Context(), ended, storage.Selection{Kind: workload("a").GroupVersionKind})
	if err != nil || len(at) != 2 {
		t.Errorf("at %s there are %v, %v", ended, at, err)
	}
}

// awaitCursor waits until RecordLeases has noted from where on it records.
func awaitCursor(t *testing.T, client *clientv3.Client) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		found, err := client.Get(t.Context(), etcd.MetaPrefix+"leases")
		if err == nil && len(found.Kvs) > 0 {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("RecordLeases has not begun: %v", err)
		}
	}
}

// TestTwoThatRecordLeasesDoNotRecordTwice: the second one returns a conflict.
func TestTwoThatRecordLeasesDoNotRecordTwice(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	lease := grant(t, store)
	putUnder(t, store, lease, "a")
	results := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	recorded := make(chan int, 2)
	for range 2 {
		go func() { results <- store.RecordLeases(ctx, func(n int) { recorded <- n }) }()
	}
	awaitCursor(t, client)
	revoke(t, store, lease)
	if n := <-recorded; n != 1 {
		t.Errorf("the record is of %d objects", n)
	}
	if err := <-results; !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the other returned %v", err)
	}
	cancel()
	<-results
	if len(recorded) != 0 {
		t.Error("the end was recorded twice")
	}
}
