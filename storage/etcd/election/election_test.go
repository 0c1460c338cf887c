package election_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

func candidates(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	answer, err := client.Get(t.Context(), etcd.ElectionPrefix+name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return answer.Count
}

func leases(t *testing.T, client *clientv3.Client) int {
	t.Helper()
	answer, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(answer.Leases)
}

// A candidate takes part in the test's own process.
type candidate struct {
	*election.Election
	log   *strings.Builder // of a candidate that has ended
	terms chan *election.Leader
	ended chan error // the cause of the end of each term
	stop  func()
}

func start(t *testing.T, client *clientv3.Client, id string) *candidate {
	t.Helper()
	log := &strings.Builder{}
	e, err := election.New(client, election.Options{
		Name: name, ID: id, TTL: ttl,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &candidate{Election: e, log: log, terms: make(chan *election.Leader, 100), ended: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() {
		ran <- e.Run(ctx, func(ctx context.Context, leader *election.Leader) error {
			c.terms <- leader
			<-ctx.Done()
			c.ended <- context.Cause(ctx)
			return ctx.Err()
		})
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

// leads waits for the next term.
func (c *candidate) leads(t *testing.T) *election.Leader {
	t.Helper()
	return await(t, "a term begins", c.terms)
}

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("not within 30 s: %s", what)
		panic("not reached")
	}
}

// TestInProcess: the election works without a socket, and without the checks that only
// gRPC makes.
func TestInProcess(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	first := start(t, client, "first")
	leader := first.leads(t)
	if _, err := leader.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	second := start(t, client, "second")
	eventually(t, "the second waits", func() bool { return candidates(t, client) == 2 })
	first.stop()
	if later := second.leads(t); later.Term() <= leader.Term() {
		t.Errorf("term %d after %d", later.Term(), leader.Term())
	}
	if _, err := leader.Client().Put(t.Context(), "k", "v"); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("a write after the term: %v", err)
	}
	second.stop()
	if n := leases(t, client); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestFence: what a leader writes, reads and is refused.
func TestFence(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, etcdtest.Listen(t))
	c := start(t, client, "one")
	leader := c.leads(t)
	ctx, kv := t.Context(), leader.Client()

	put, err := kv.Put(ctx, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	absent := clientv3.Compare(clientv3.CreateRevision("a"), "=", 0)
	txn, err := leader.Client().Txn(ctx).If(absent).Then(clientv3.OpPut("a", "2")).Else(clientv3.OpGet("a")).Commit()
	if err != nil || txn.Succeeded || string(txn.Responses[0].GetResponseRange().Kvs[0].Value) != "1" {
		t.Fatalf("a condition of the caller that does not hold: %+v, %v", txn, err)
	}
	if txn.Header.Revision != put.Header.Revision {
		t.Errorf("revisions: put %d, transaction %d", put.Header.Revision, txn.Header.Revision)
	}
	deleted, err := kv.Delete(ctx, "a", clientv3.WithPrevKV())
	if err != nil || deleted.Deleted != 1 || string(deleted.PrevKvs[0].Value) != "1" || deleted.Header.Revision != put.Header.Revision+1 {
		t.Fatalf("delete: %+v, %v", deleted, err)
	}
	done, err := kv.Do(ctx, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("b", "3")}, nil))
	if err != nil || !done.Txn().Succeeded {
		t.Fatalf("%+v, %v", done, err)
	}

	answer, err := client.Delete(ctx, etcd.ElectionPrefix, clientv3.WithPrefix())
	if err != nil || answer.Deleted != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	_, putErr := kv.Put(ctx, "b", "4")
	_, deleteErr := kv.Delete(ctx, "b")
	_, txnErr := leader.Client().Txn(ctx).Then(clientv3.OpPut("b", "4")).Commit()
	for _, err := range []error{putErr, deleteErr, txnErr} {
		if !errors.Is(err, election.ErrNotLeader) || !errors.Is(err, storage.ErrReadOnly) {
			t.Errorf("after the key is gone: %v", err)
		}
	}
	if b, err := kv.Get(ctx, "b"); err != nil || string(b.Kvs[0].Value) != "3" {
		t.Errorf("%+v, %v", b, err)
	}
	if err := await(t, "the term ends", c.ended); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("the cause: %v", err)
	}
	c.leads(t) // again
}

// TestKeyRemoved: a leader that writes nothing also notices.
func TestKeyRemoved(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, etcdtest.Listen(t))
	c := start(t, client, "one")
	c.leads(t)
	if _, err := client.Delete(t.Context(), etcd.ElectionPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the term ends", c.ended); !errors.Is(err, election.ErrNotLeader) || !strings.Contains(err.Error(), "removed") {
		t.Errorf("the cause: %v", err)
	}
	c.leads(t)
	c.stop()
	if n := leases(t, client); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestNoAnswers: a leader that gets no answer from etcd gives up before its lease can
// have expired, and leads again when etcd answers.
func TestNoAnswers(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	relay := etcdtest.NewRelay(t, endpoint)
	c := start(t, etcdtest.Dial(t, relay.Endpoint()), "one")
	term := c.leads(t).Term()
	relay.HoldRequests()
	if err := await(t, "the term ends", c.ended); !errors.Is(err, election.ErrNotLeader) || !strings.Contains(err.Error(), "may expire") {
		t.Errorf("the cause: %v", err)
	}
	// Its key is still there, so nobody else can lead yet.
	holder, err := election.Observe(t.Context(), etcdtest.Dial(t, endpoint), name)
	if err != nil || holder.Term != term {
		t.Errorf("it gave up after its lease: %+v, %v", holder, err)
	}
	relay.Release()
	c.leads(t)
}

// TestCompaction: waiting candidates keep their places over a compaction.
func TestCompaction(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, etcdtest.Listen(t))
	first := start(t, client, "first")
	first.leads(t)
	second := start(t, client, "second")
	eventually(t, "the second waits", func() bool { return candidates(t, client) == 2 })
	for range 10 {
		answer, err := client.Put(t.Context(), "k", "v")
		if err == nil {
			_, err = client.Compact(t.Context(), answer.Header.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first.stop()
	second.leads(t)
}

// TestEtcdAway: the election goes on after etcd was away for longer than the TTL, and
// made few attempts meanwhile.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	dir, socket := t.TempDir(), filepath.Join(t.TempDir(), "private", "s")
	run := func() *member.Member {
		m, err := member.Start(t.Context(), member.Options{DataDir: dir, Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := run()
	var calls atomic.Int64
	client := counting(t, "unix://"+socket, &calls)
	c := start(t, client, "one")
	first := c.leads(t)
	before := calls.Load()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the term ends", c.ended); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("the cause: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Leader(ctx); err == nil {
		t.Error("a leader without etcd")
	}
	if n := calls.Load() - before; n > 300 {
		t.Errorf("%d calls in about %s", n, ttl)
	}
	m = run()
	defer m.Close()
	if later := c.leads(t); later.Term() <= first.Term() {
		t.Errorf("term %d after %d", later.Term(), first.Term())
	}
	c.stop()
	eventually(t, "no lease is left", func() bool { return leases(t, client) == 0 })
}

// TestLeaderChange: the members of etcd change their own leader.
func TestLeaderChange(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Endpoints(etcdtest.Cluster(t))
	client := etcdtest.Dial(t, endpoints...)
	first := start(t, client, "first")
	leader := first.leads(t)
	second := start(t, client, "second")
	eventually(t, "the second waits", func() bool { return candidates(t, client) == 2 })
	for range 3 {
		moveLeader(t, endpoints)
		eventually(t, "somebody leads and writes", func() bool {
			for {
				select {
				case leader = <-first.terms:
					continue
				case leader = <-second.terms:
					continue
				default:
				}
				break
			}
			_, err := leader.Client().Put(t.Context(), fencedKey, "v")
			return err == nil
		})
	}
	holder, err := second.Leader(t.Context())
	if err != nil || holder.Term != leader.Term() {
		t.Errorf("%+v, %v, want term %d", holder, err, leader.Term())
	}
}

func moveLeader(t *testing.T, endpoints []string) {
	t.Helper()
	for _, e := range endpoints {
		client := etcdtest.Dial(t, e)
		s, err := client.Status(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if s.Leader != s.Header.MemberId {
			continue
		}
		members, err := client.MemberList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members.Members {
			if m.ID != s.Leader {
				if _, err := client.MoveLeader(t.Context(), m.ID); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatal("etcd has no leader")
}

// TestJobFails: a job that cannot be done is tried again with pauses.
func TestJobFails(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	e, err := election.New(client, election.Options{Name: name, ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var begun []time.Time
	err = e.Run(ctx, func(context.Context, *election.Leader) error {
		if begun = append(begun, time.Now()); len(begun) == 4 {
			cancel()
		}
		return errors.New("it cannot be done")
	})
	if err != nil || len(begun) != 4 || leases(t, client) != 0 {
		t.Fatalf("%v, %d terms, %d leases are left", err, len(begun), leases(t, client))
	}
	if took := begun[3].Sub(begun[0]); took < 350*time.Millisecond { // half of 100, 200 and 400
		t.Errorf("4 terms within %s", took)
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	if _, err := election.Observe(t.Context(), client, name); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("with nobody: %v", err)
	}
	begun := time.Now()
	c := start(t, client, "host-1")
	leader := c.leads(t)
	got, err := c.Leader(t.Context())
	if err != nil || got.ID != "host-1" || got.Term != leader.Term() || got.Since.Before(begun.Add(-time.Second)) || got.Since.After(time.Now()) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := client.Put(t.Context(), etcd.ElectionPrefix+"other/1", "garbage"); err != nil {
		t.Fatal(err)
	}
	if _, err := election.Observe(t.Context(), client, "other"); err == nil || errors.Is(err, election.ErrNoLeader) {
		t.Errorf("of garbage: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := start(t, etcdtest.Start(t), "one")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Election)
	c.leads(t)
	read := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				out[f.GetName()+" "+m.Label[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		return out
	}
	if got, want := read(), (map[string]float64{"portolan_leader job": 1, "portolan_leader_terms_total job": 1}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	c.stop()
	if got, want := read(), (map[string]float64{"portolan_leader job": 0, "portolan_leader_terms_total job": 1}); !maps.Equal(got, want) {
		t.Errorf("after its end: got %v, want %v", got, want)
	}
	if !strings.Contains(c.log.String(), "msg=leads") || !strings.Contains(c.log.String(), "msg=resigns") {
		t.Errorf("the log:\n%s", c.log)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	for _, o := range []election.Options{
		{ID: "id"},
		{Name: "a/b", ID: "id"},
		{Name: "a"},
		{Name: "a", ID: "id", TTL: time.Second},
		{Name: "a", ID: "id", TTL: 3500 * time.Millisecond},
	} {
		if _, err := election.New(client, o); err == nil {
			t.Errorf("no error for %+v", o)
		}
	}
	if _, err := election.New(nil, election.Options{Name: "a", ID: "id"}); err == nil {
		t.Error("no error without a client")
	}
}
