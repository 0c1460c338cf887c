package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// ambiguous are errors each of which can come from a mutation that has landed and from
// one that has not.
var ambiguous = map[string]error{
	"deadline":         context.DeadlineExceeded,
	"canceled":         context.Canceled,
	"timed out":        rpctypes.ErrTimeout,
	"leader failed":    rpctypes.ErrTimeoutDueToLeaderFail,
	"leader changed":   rpctypes.ErrLeaderChanged,
	"server stopped":   rpctypes.ErrStopped,
	"connection lost":  status.Error(codes.Unavailable, "error reading from server: EOF"),
	"unknown to us":    errors.New("something else"),
	"internal":         status.Error(codes.Internal, "stream terminated"),
	"canceled by gRPC": status.Error(codes.Canceled, "grpc: the client connection is closing"),
}

// mutations are one of each kind, on a store that has the objects of prepare. Each says
// what the objects are afterwards, by name.
var mutations = map[string]struct {
	ops  []storage.Op
	want map[string]string
}{
	"create": {
		[]storage.Op{{Verb: storage.Create, Config: entry("new", "mine")}},
		map[string]string{"new": "mine", "old": "0", "other": "0"},
	},
	"update": {
		[]storage.Op{{Verb: storage.Update, Config: entry("old", "mine")}},
		map[string]string{"old": "mine", "other": "0"},
	},
	"delete": {
		[]storage.Op{{Verb: storage.Delete, Key: entry("old").Key()}},
		map[string]string{"other": "0"},
	},
	"batch": {
		[]storage.Op{
			{Verb: storage.Put, Config: entry("new", "mine")},
			{Verb: storage.Put, Config: entry("other", "0")}, // unchanged
			{Verb: storage.Delete, Key: entry("old").Key()},
		},
		map[string]string{"new": "mine", "other": "0"},
	},
}

func prepare(t testing.TB, store *etcd.Store) {
	t.Helper()
	create(t, store, entry("old", "0"))
	create(t, store, entry("other", "0"))
}

// contents are the objects of a store, by name.
func contents(t testing.TB, store *etcd.Store) map[string]string {
	t.Helper()
	objects, err := store.List(t.Context(), schema.ServiceEntry, "")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, o := range objects {
		found[o.Name] = host(o)
	}
	return found
}

func host(o *config.Config) string {
	return o.Spec.(interface{ GetHosts() []string }).GetHosts()[0]
}

// markMutation marks the history records of the mutation under test.
func markMutation(t testing.TB) context.Context {
	return storage.WithOrigin(t.Context(), storage.Origin{User: "me"})
}

// landings returns the revisions of the mutations that mine marked.
func landings(t testing.TB, store *etcd.Store) (revisions []string) {
	t.Helper()
	records, err := store.Records(t.Context(), storage.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Origin.User == "me" {
			revisions = append(revisions, r.Revision)
		}
	}
	return revisions
}

// wantOnce checks that a mutation that reported success landed once, and at the reported
// revision.
func wantOnce(t testing.TB, store *etcd.Store, revision string, results []storage.Result) {
	t.Helper()
	if landed := landings(t, store); len(landed) != 1 || landed[0] != revision {
		t.Errorf("landed at %q, reported %s", landed, revision)
	}
	for _, r := range results {
		if r.Outcome != storage.Unchanged && r.ResourceVersion != revision {
			t.Errorf("%s was reported at %s, want %s", r.Key, r.ResourceVersion, revision)
		}
	}
}

// TestAnAnswerThatIsLostIsFound: whatever the error says, the mutation landed, and the
// store reports that. It does not send it again.
func TestAnAnswerThatIsLostIsFound(t *testing.T) {
	t.Parallel()
	for name, lost := range ambiguous {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, m := range mutations {
				client := etcdtest.Start(t)
				kv := hook(client)
				store := open(t, client)
				prepare(t, store)
				kv.after = always(lost)
				kv.commits.Store(0)
				revision, results, err := store.Apply(markMutation(t), m.ops)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				wantOnce(t, store, revision, results)
				if got := contents(t, store); fmt.Sprint(got) != fmt.Sprint(m.want) {
					t.Errorf("%s: objects are %v, want %v", name, got, m.want)
				}
				if n := kv.commits.Load(); n != 1 {
					t.Errorf("%s: %d transactions were sent", name, n)
				}
			}
		})
	}
}

// TestARequestThatIsLostIsSentAgain: the same errors, but nothing landed.
func TestARequestThatIsLostIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, lost := range ambiguous {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, m := range mutations {
				client := etcdtest.Start(t)
				kv := hook(client)
				store := open(t, client)
				prepare(t, store)
				kv.before = once(always(lost))
				revision, results, err := store.Apply(markMutation(t), m.ops)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				wantOnce(t, store, revision, results)
				if got := contents(t, store); fmt.Sprint(got) != fmt.Sprint(m.want) {
					t.Errorf("%s: objects are %v, want %v", name, got, m.want)
				}
			}
		})
	}
}

// TestWithoutAnAnswerBeforeTheDeadlineTheOutcomeIsUnknown: whether the mutation landed
// (after) or not (before), the error says what is in doubt, and why.
func TestWithoutAnAnswerBeforeTheDeadlineTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for name, m := range mutations {
		for _, landed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", name, landed), func(t *testing.T) {
				t.Parallel()
				client := etcdtest.Start(t)
				kv := hook(client)
				store := open(t, client)
				prepare(t, store)
				ctx, cancel := context.WithCancel(markMutation(t))
				defer cancel()
				lose := func() error { cancel(); return rpctypes.ErrTimeout }
				want := 0
				if kv.before = lose; landed {
					kv.before, kv.after, want = nil, lose, 1
				}
				_, _, err := store.Apply(ctx, m.ops)
				if !isErr(err, storage.ErrOutcomeUnknown) || !isErr(err, rpctypes.ErrTimeout) || !strings.Contains(err.Error(), "serviceentry/shop/") {
					t.Errorf("error is %v, want ErrOutcomeUnknown of the timeout that names the object", err)
				}
				if n := len(landings(t, store)); n != want {
					t.Errorf("landed %d times, want %d", n, want)
				}
			})
		}
	}
}

// TestTheWorkOfOthersHidesNothing: the mutation landed, its answer was lost, and
// a rival changed or removed the object before its writer could look.
func TestTheWorkOfOthersHidesNothing(t *testing.T) {
	t.Parallel()
	rivals := map[string]func(context.Context, *etcd.Store, string) error{
		"changed": func(ctx context.Context, other *etcd.Store, name string) error {
			_, _, err := other.Apply(ctx, []storage.Op{{Verb: storage.Put, Config: entry(name, "rival")}})
			return err
		},
		"deleted": func(ctx context.Context, other *etcd.Store, name string) error {
			_, _, err := other.Apply(ctx, []storage.Op{{Verb: storage.Put, Config: entry(name, "rival")}, {Verb: storage.Put, Config: entry("x", "x")}})
			if err == nil {
				_, err = other.Delete(ctx, schema.ServiceEntry, name, "shop", "")
			}
			return err
		},
	}
	for rival, interfere := range rivals {
		for name, m := range mutations {
			t.Run(name+"/"+rival, func(t *testing.T) {
				t.Parallel()
				endpoint := etcdtest.Listen(t)
				other := open(t, etcdtest.Dial(t, endpoint))
				client := etcdtest.Dial(t, endpoint)
				kv := hook(client)
				store := open(t, client)
				prepare(t, other)
				kv.after = once(func() error {
					for _, target := range m.ops {
						if err := interfere(t.Context(), other, target.Target().Name); err != nil {
							return err
						}
					}
					return rpctypes.ErrTimeout
				})
				revision, results, err := store.Apply(markMutation(t), m.ops)
				if err != nil {
					t.Fatal(err)
				}
				wantOnce(t, other, revision, results)
			})
		}
	}
}

// TestALostRaceInDoubtIsToldAsOne: the mutation did not land, and a rival was faster. A
// conditional mutation fails with the present object, an unconditional one is applied on
// top of it.
func TestALostRaceInDoubtIsToldAsOne(t *testing.T) {
	t.Parallel()
	conditional := func(version string) *config.Config {
		c := entry("old", "mine")
		c.ResourceVersion = version
		return c
	}
	for name, tt := range map[string]struct {
		op      func(version string) storage.Op
		class   error
		landed  int
		content string
	}{
		"conditional update": {func(v string) storage.Op { return storage.Op{Verb: storage.Update, Config: conditional(v)} },
			storage.ErrConflict, 0, "rival"},
		"update": {func(string) storage.Op { return storage.Op{Verb: storage.Update, Config: entry("old", "mine")} }, nil, 1, "mine"},
		"conditional delete": {func(v string) storage.Op {
			return storage.Op{Verb: storage.Delete, Key: entry("old").Key(), ResourceVersion: v}
		}, storage.ErrConflict, 0, "rival"},
		"delete": {func(string) storage.Op { return storage.Op{Verb: storage.Delete, Key: entry("old").Key()} }, nil, 1, ""},
		"create": {func(string) storage.Op { return storage.Op{Verb: storage.Create, Config: entry("new", "mine")} },
			storage.ErrExists, 0, "rival"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := etcdtest.Listen(t)
			other := open(t, etcdtest.Dial(t, endpoint))
			client := etcdtest.Dial(t, endpoint)
			kv := hook(client)
			store := open(t, client)
			version := create(t, other, entry("old", "0"))
			op := tt.op(version)
			kv.before = once(func() error {
				_, _, err := other.Apply(t.Context(), []storage.Op{{Verb: storage.Put, Config: entry(op.Target().Name, "rival")}})
				return errors.Join(err, rpctypes.ErrTimeout)
			})
			if _, _, err := store.Apply(markMutation(t), []storage.Op{op}); !isErr(err, tt.class) {
				t.Errorf("error is %v, want %v", err, tt.class)
			}
			if n := len(landings(t, other)); n != tt.landed {
				t.Errorf("landed %d times, want %d", n, tt.landed)
			}
			if got := contents(t, other)[op.Target().Name]; got != tt.content {
				t.Errorf("content is %q, want %q", got, tt.content)
			}
		})
	}
}

// TestAPruneWhileInDoubtHidesNothing: the record that proves the outcome is too young to
// be pruned.
func TestAPruneWhileInDoubtHidesNothing(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	other := open(t, etcdtest.Dial(t, endpoint))
	client := etcdtest.Dial(t, endpoint)
	kv := hook(client)
	store := open(t, client)
	prepare(t, other)
	kv.after = once(func() error {
		_, err := other.Update(t.Context(), entry("old", "rival"))
		if err == nil {
			_, err = other.Prune(t.Context(), storage.Retention{Keep: 1, Deleted: time.Nanosecond})
		}
		return errors.Join(err, rpctypes.ErrTimeout)
	})
	revision, results, err := store.Apply(markMutation(t), mutations["update"].ops)
	if err != nil {
		t.Fatal(err)
	}
	wantOnce(t, other, revision, results)
}

// TestTheObjectTellsToo: somebody removed the record by hand; the write id in the object
// proves the outcome.
func TestTheObjectTellsToo(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	kv := hook(client)
	store := open(t, client)
	prepare(t, store)
	kv.after = once(func() error {
		_, err := client.Delete(t.Context(), etcd.HistoryPrefix, clientv3.WithPrefix())
		return errors.Join(err, rpctypes.ErrTimeout)
	})
	revision, _, err := store.Apply(markMutation(t), mutations["batch"].ops)
	if err != nil {
		t.Fatal(err)
	}
	object, err := store.Get(t.Context(), schema.ServiceEntry, "new", "shop")
	if err != nil || object.ResourceVersion != revision {
		t.Errorf("the object is of %s, %v, the batch was reported at %s", object.ResourceVersion, err, revision)
	}
}

// TestIncrementsInDoubtAllCount: several writers increment one counter by compare and
// swap; every other transaction loses its request or its answer. The sum has exactly the
// increments that were reported done.
func TestIncrementsInDoubtAllCount(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	direct := open(t, etcdtest.Dial(t, endpoint))
	create(t, direct, entry("counter", "0"))
	const writers, rounds = 4, 20
	var group sync.WaitGroup
	for range writers {
		client := etcdtest.Dial(t, endpoint)
		store := open(t, client)
		hookFaults(client)
		group.Go(func() {
			for range rounds {
				if err := increment(markMutation(t), store); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got := contents(t, direct)["counter"]; got != strconv.Itoa(writers*rounds) {
		t.Errorf("the counter is %s, want %d", got, writers*rounds)
	}
	if n := len(landings(t, direct)); n != writers*rounds {
		t.Errorf("%d increments landed, want %d", n, writers*rounds)
	}
}

// hookFaults loses the request of every fourth transaction, and the answer of another
// fourth.
func hookFaults(client *clientv3.Client) {
	kv := hook(client)
	var n atomic.Int64
	kv.before = func() error {
		if n.Add(1)%4 == 1 {
			return rpctypes.ErrTimeout
		}
		return nil
	}
	kv.after = func() error {
		if n.Load()%4 == 3 {
			return rpctypes.ErrLeaderChanged
		}
		return nil
	}
}

func increment(ctx context.Context, store *etcd.Store) error {
	for {
		now, err := store.Get(ctx, schema.ServiceEntry, "counter", "shop")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(host(now))
		if err != nil {
			return err
		}
		next := entry("counter", strconv.Itoa(n+1))
		next.ResourceVersion = now.ResourceVersion
		if _, err = store.Update(ctx, next); !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
}
