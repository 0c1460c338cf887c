package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// window is a store behind a relay, and a direct client.
type window struct {
	testing.TB
	relay  *etcdtest.Relay
	kv     *hooked
	store  *etcd.Store
	direct *clientv3.Client
	other  *etcd.Store
}

func newWindow(t testing.TB, timeout time.Duration) *window {
	t.Helper()
	endpoint := etcdtest.Listen(t)
	w := &window{TB: t, relay: etcdtest.NewRelay(t, endpoint), direct: etcdtest.Dial(t, endpoint)}
	w.other = open(t, w.direct)
	client := etcdtest.Dial(t, w.relay.Endpoint())
	w.kv = hook(client)
	w.store = open(t, client, func(o *etcd.Options) { o.RequestTimeout = timeout })
	prepare(t, w.other)
	contents(t, w.store) // connects the store
	return w
}

func (w *window) eventually(what string, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			w.Fatalf("not within 30 s: %s", what)
		}
	}
}

// requestHeld waits until the relay holds a whole mutation, which names its record in a
// compare, a put and a read.
func (w *window) requestHeld() {
	w.Helper()
	w.eventually("the request is held", func() bool {
		return w.relay.Held(func(b []byte) bool { return bytes.Count(b, []byte(etcd.HistoryPrefix)) >= 3 })
	})
}

// landed waits until the mutation that mine marked has landed.
func (w *window) landed() {
	w.Helper()
	w.eventually("the mutation landed", func() bool { return len(landings(w, w.other)) == 1 })
}

// askedAgain waits until the store has sent more than n requests.
func (w *window) askedAgain(n int64) {
	w.Helper()
	w.eventually("the store asks again", func() bool { return w.kv.requests.Load() > n })
}

// windows are the faults of a mutation and its answer: hold runs before it is sent, then
// runs while it is under way.
var windows = map[string]struct {
	hold func(*etcdtest.Relay)
	then func(w *window, sent int64)
}{
	"the request is lost with the connection": {(*etcdtest.Relay).HoldRequests, func(w *window, _ int64) {
		w.requestHeld()
		w.relay.Cut()
	}},
	"the request is late": {(*etcdtest.Relay).HoldRequests, func(w *window, sent int64) {
		w.askedAgain(sent)
		w.relay.Release()
	}},
	"the answer is lost with the connection": {(*etcdtest.Relay).HoldAnswers, func(w *window, _ int64) {
		w.landed()
		w.relay.Cut()
	}},
	"the answer is late": {(*etcdtest.Relay).HoldAnswers, func(w *window, sent int64) {
		w.askedAgain(sent)
		w.relay.Release()
	}},
	"the connection is cut as it is sent": {(*etcdtest.Relay).Cut, func(*window, int64) {}},
	"the request comes from a client that is gone, late": {(*etcdtest.Relay).HoldRequests, func(w *window, _ int64) {
		w.requestHeld()
		w.relay.Orphan()
		w.landed() // over another connection
		w.process()
	}},
}

// process releases what is held and waits until the server has processed it: every
// transaction that may write raises the index, even one that fails.
func (w *window) process() {
	w.Helper()
	index := w.index()
	w.relay.Release()
	w.eventually("the server has processed the late request", func() bool { return w.index() > index })
}

func (w *window) index() uint64 {
	w.Helper()
	status, err := w.direct.Status(w.Context(), w.direct.Endpoints()[0])
	if err != nil {
		w.Fatal(err)
	}
	return status.RaftAppliedIndex
}

// TestEveryWindow: etcd answers again before the deadline, so the mutation is reported
// done, and is done once.
func TestEveryWindow(t *testing.T) {
	t.Parallel()
	for name, befalls := range windows {
		for mutation, m := range mutations {
			t.Run(mutation+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newWindow(t, 8*time.Second)
				sent := make(chan int64, 1)
				w.kv.before = once(func() error {
					befalls.hold(w.relay)
					sent <- w.kv.requests.Load()
					return nil
				})
				var revision string
				var results []storage.Result
				done := make(chan error, 1)
				go func() {
					var err error
					revision, results, err = w.store.Apply(markMutation(t), m.ops)
					done <- err
				}()
				befalls.then(w, <-sent)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				wantOnce(t, w.other, revision, results)
				if got := contents(t, w.other); fmt.Sprint(got) != fmt.Sprint(m.want) {
					t.Errorf("objects are %v, want %v", got, m.want)
				}
			})
		}
	}
}

// TestNoAnswerUntilTheDeadline: the outcome is unknown, and the mutation landed once or
// not at all.
func TestNoAnswerUntilTheDeadline(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hold   func(*etcdtest.Relay)
		landed int
	}{
		"of a request that is held": {(*etcdtest.Relay).HoldRequests, 0},
		"of one whose answer is":    {(*etcdtest.Relay).HoldAnswers, 1},
	} {
		for mutation, m := range mutations {
			t.Run(mutation+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newWindow(t, 800*time.Millisecond)
				w.kv.before = once(func() error { tt.hold(w.relay); return nil })
				_, _, err := w.store.Apply(markMutation(t), m.ops)
				if !isErr(err, storage.ErrOutcomeUnknown) || !isErr(err, context.DeadlineExceeded) {
					t.Errorf("error is %v, want ErrOutcomeUnknown of the deadline", err)
				}
				w.relay.Cut()
				if n := len(landings(t, w.other)); n != tt.landed {
					t.Errorf("landed %d times, want %d", n, tt.landed)
				}
			})
		}
	}
}

// TestALateCreateDoesNotComeBack: the create was sent again and acknowledged, somebody
// deleted the object, and only then the first request arrives.
func TestALateCreateDoesNotComeBack(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 30*time.Second)
	w.kv.before = once(func() error { w.relay.HoldRequests(); return nil })
	done := make(chan error, 1)
	go func() {
		_, err := w.store.Create(markMutation(t), entry("new", "mine"))
		done <- err
	}()
	w.requestHeld()
	w.relay.Orphan()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := w.other.Delete(t.Context(), schema.ServiceEntry, "new", "shop", ""); err != nil {
		t.Fatal(err)
	}
	w.process()
	if got, there := contents(t, w.other)["new"]; there {
		t.Errorf("the deleted object is back: %s", got)
	}
}

// TestACreateReportedLostStaysSo: a rival creates the object while the request is under
// way, and deletes it after the writer got ErrExists. When the request arrives late, it
// must not land.
func TestACreateReportedLostStaysSo(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]storage.Op{
		"with another create": {Verb: storage.Create, Config: entry("third", "mine")},
		"with an update":      {Verb: storage.Put, Config: entry("old", "mine")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWindow(t, 30*time.Second)
			w.kv.before = once(func() error {
				w.relay.HoldRequests()
				return nil
			})
			done := make(chan error, 1)
			go func() {
				_, _, err := w.store.Apply(markMutation(t), []storage.Op{{Verb: storage.Create, Config: entry("new", "mine")}, op})
				done <- err
			}()
			w.requestHeld()
			create(t, w.other, entry("new", "rival"))
			w.relay.Orphan()
			if err := <-done; !isErr(err, storage.ErrExists) {
				t.Fatalf("error is %v, want ErrExists", err)
			}
			if _, err := w.other.Delete(t.Context(), schema.ServiceEntry, "new", "shop", ""); err != nil {
				t.Fatal(err)
			}
			w.process()
			if n := len(landings(t, w.other)); n != 0 {
				t.Errorf("what was reported lost landed %d times", n)
			}
			if got, there := contents(t, w.other)["new"]; there {
				t.Errorf("what was reported lost is there: %s", got)
			}
		})
	}
}
