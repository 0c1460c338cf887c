package external_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// TestDocumentedRoles does what the store and the cache do with etcd beyond what their
// conformance suites do as the same user, and what no user may do.
func TestDocumentedRoles(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewSecured(t)
	root, portolan, reader := s.Dial(t, "root"), s.Dial(t, "portolan"), s.Dial(t, "portolan-reader")
	ctx := t.Context()
	const key = etcd.ConfigPrefix + "x"
	if _, err := portolan.Put(ctx, key, "1"); err != nil {
		t.Fatal(err)
	}
	for user, client := range map[string]*clientv3.Client{"portolan": portolan, "portolan-reader": reader} {
		expectAllowed(t, user+" reads", reads(t, client))
		expectDenied(t, user, map[string]error{
			"reads elsewhere":        second(client.Get(ctx, "/elsewhere")),
			"reads everything":       second(client.Get(ctx, "", clientv3.WithFromKey())),
			"reads on past the end":  second(client.Get(ctx, "/portolan/", clientv3.WithRange("/portolan1"))),
			"streams everything":     streamed(client, "", clientv3.WithFromKey()),
			"watches everything":     watched(t, client, "", clientv3.WithFromKey()),
			"watches on from a key":  watched(t, client, key, clientv3.WithFromKey()),
			"writes elsewhere":       second(client.Put(ctx, "/portolan0", "")),
			"deletes elsewhere":      second(client.Delete(ctx, "/portolan", clientv3.WithFromKey())),
			"compacts":               second(client.Compact(ctx, 1)),
			"makes users":            second(client.UserAdd(ctx, "mallory", "x")),
			"disarms alarms":         second(client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE})),
			"defragments":            second(client.Defragment(ctx, s.Endpoint)),
			"changes its own rights": second(client.UserGrantRole(ctx, user, "root")),
		})
	}
	expectDenied(t, "portolan-reader", map[string]error{
		"writes":  second(reader.Put(ctx, key, "2")),
		"deletes": second(reader.Delete(ctx, key)),
		"writes in a transaction": second(reader.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), ">", 7)).
			Then(clientv3.OpPut(key, "2")).Commit()),
	})
	expectAllowed(t, "portolan is elected", elected(t, portolan))
	if r, err := root.Get(ctx, key); err != nil || string(r.Kvs[0].Value) != "1" {
		t.Errorf("afterwards: %v, %v", r, err)
	}
}

func second[T any](_ T, err error) error { return err }

func expectAllowed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func expectDenied(t *testing.T, user string, attempts map[string]error) {
	t.Helper()
	for what, err := range attempts {
		if err == nil || !strings.Contains(err.Error(), rpctypes.ErrPermissionDenied.Error()) {
			t.Errorf("%s %s: %v, want permission denied", user, what, err)
		}
	}
}

// reads reads in all the ways of the cache: a page, a stream, a watch with its progress,
// and a transaction.
func reads(t *testing.T, client *clientv3.Client) error {
	t.Helper()
	page, err := client.Get(t.Context(), etcd.MeshPrefix, clientv3.WithPrefix(), clientv3.WithLimit(10))
	if err != nil || len(page.Kvs) == 0 {
		return fmt.Errorf("a page: %v, %w", page, err)
	}
	if err := streamed(client, etcd.MeshPrefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("a stream: %w", err)
	}
	if _, err := client.Txn(t.Context()).Then(clientv3.OpGet(etcd.InstanceKey)).Commit(); err != nil {
		return fmt.Errorf("a transaction: %w", err)
	}
	return watched(t, client, etcd.MeshPrefix, clientv3.WithPrefix(), clientv3.WithRev(page.Header.Revision))
}

func streamed(client *clientv3.Client, from string, opts ...clientv3.OpOption) (err error) {
	pieces, err := client.GetStream(client.Ctx(), from, opts...)
	if err != nil {
		return err
	}
	for piece := range pieces {
		err = errors.Join(err, piece.Err())
	}
	return err
}

// watched opens a watch, and requests its progress until that arrives.
func watched(t *testing.T, client *clientv3.Client, from string, opts ...clientv3.OpOption) error {
	t.Helper()
	ctx := dial.OwnStream(clientv3.WithRequireLeader(t.Context()))
	responses := client.Watch(ctx, from, append(opts, clientv3.WithCreatedNotify(), clientv3.WithFragment())...)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(patience)
	for {
		select {
		case response, ok := <-responses:
			switch {
			case !ok:
				return errors.New("the watch ended")
			case response.Err() != nil:
				return response.Err()
			case response.IsProgressNotify():
				return nil
			}
		case <-ticker.C:
			if err := client.RequestProgress(ctx); err != nil {
				return err
			}
		case <-limit:
			return errors.New("no progress of the watch")
		}
	}
}

// elected elects a client and has it resign, under the keys of elections.
func elected(t *testing.T, client *clientv3.Client) error {
	t.Helper()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	if err != nil {
		return err
	}
	election := concurrency.NewElection(session, etcd.ElectionPrefix+"test")
	if err := election.Campaign(t.Context(), "me"); err != nil {
		return err
	}
	return errors.Join(election.Resign(t.Context()), session.Close())
}

// TestTokensEnd uses a client again after its token has expired, in every way in which
// the product uses it.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewSecured(t)
	root, portolan := s.Dial(t, "root"), s.Dial(t, "portolan")
	for name, end := range map[string]func(){
		"by a change of the user": func() { etcdtest.Etcdctl(t, root, "user passwd portolan") },
		// Every second etcd drops the tokens that have been unused for a second.
		"by its time": func() { <-time.After(2500 * time.Millisecond) },
	} {
		watch := portolan.Watch(dial.OwnStream(clientv3.WithRequireLeader(t.Context())), etcd.MeshPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		<-watch
		for round := range 2 {
			if _, err := portolan.Put(t.Context(), etcd.ConfigPrefix+"x", fmt.Sprint(round)); err != nil {
				t.Fatalf("%s, round %d: %v", name, round, err)
			}
			if r := <-watch; r.Err() != nil || len(r.Events) != 1 {
				t.Fatalf("%s, round %d: the watch brought %v, %v", name, round, r.Events, r.Err())
			}
			end()
			if err := reads(t, portolan); err != nil {
				t.Fatalf("%s, round %d: %v", name, round, err)
			}
			end()
		}
	}
}
