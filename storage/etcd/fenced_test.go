package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// lead holds the leadership of an election until the test ends.
func lead(t *testing.T, client *clientv3.Client) *election.Leader {
	t.Helper()
	e, err := election.New(client, election.Options{Name: "test", ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	leaders, ran := make(chan *election.Leader, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		ran <- e.Run(ctx, func(ctx context.Context, leader *election.Leader) error {
			select {
			case leaders <- leader:
			default: // a later term
			}
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	select {
	case leader := <-leaders:
		return leader
	case <-time.After(30 * time.Second):
		t.Fatal("no leader within 30 s")
		return nil
	}
}

// TestFenced: the store of a leader does all that a store does, with one operation less
// in a transaction, and writes nothing once the term has ended.
func TestFenced(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := func(o *etcd.Options) { o.Now = func() time.Time { now = now.Add(time.Hour); return now } }
	client := etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits))
	plain := open(t, client, stock, clock)
	leader := lead(t, client)
	store := plain.Fenced(leader.Client())

	if _, _, err := store.Apply(t.Context(), puts(125, 10)); err != nil {
		t.Errorf("125 operations: %v", err)
	}
	_, _, err := store.Apply(t.Context(), puts(126, 20))
	wantTooLarge(t, err, "126 operations")
	create(t, store, entry("large", noise(largest)))
	create(t, store, entry("a", "0"))
	for n := range 150 {
		if _, err := store.Update(t.Context(), entry("a", fmt.Sprint(n+1))); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := store.Prune(t.Context(), storage.Retention{Keep: 50}); err != nil || removed != 101 {
		t.Errorf("pruned %d, %v", removed, err)
	}
	create(t, plain, entry("another", "1")) // the fence does not affect it

	if _, err := client.Delete(t.Context(), etcd.ElectionPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	before := value(t, client, etcd.ConfigKey(entry("a").Key())).ModRevision
	_, updateErr := store.Update(t.Context(), entry("a", "x"))
	_, pruneErr := store.Prune(t.Context(), storage.Retention{Keep: 1})
	for name, err := range map[string]error{"update": updateErr, "prune": pruneErr} {
		if !isErr(err, election.ErrNotLeader) || isErr(err, storage.ErrOutcomeUnknown) {
			t.Errorf("%s after the term: %v, want ErrNotLeader", name, err)
		}
	}
	if after := value(t, client, etcd.ConfigKey(entry("a").Key())).ModRevision; after != before {
		t.Errorf("an update after the term has landed")
	}
	if removed, err := plain.Prune(t.Context(), storage.Retention{Keep: 1}); err != nil || removed != 49 {
		t.Errorf("a plain store pruned %d, %v, want the 49 that the fenced one could not", removed, err)
	}
}
