package upkeep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// readable says whether a revision can be read.
func (r *rig) readable(revision int64) bool {
	r.t.Helper()
	_, err := r.client.Get(r.t.Context(), "k", clientv3.WithRev(revision))
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		r.t.Fatal(err)
	}
	return err == nil
}

func TestRetention(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, upkeep.Policy{Retention: time.Hour})
	r.mustPut("k", 1)
	old := r.check().Revision
	r.clock.pass(30 * time.Minute)
	r.mustPut("k", 2)
	recent := r.check().Revision
	r.clock.pass(29 * time.Minute)
	if r.check(); !r.readable(old) {
		t.Error("a revision of the last hour is gone")
	}
	r.clock.pass(time.Minute)
	r.mustPut("k", 3)
	if s := r.check(); s.Compacted != 0 && s.Compacted != old {
		t.Errorf("compacted to %d, want %d", s.Compacted, old)
	}
	if r.readable(old-1) || !r.readable(old) || !r.readable(recent) {
		t.Errorf("want %d, the newest of an hour ago, to be the oldest that is readable", old)
	}
	r.clock.pass(24 * time.Hour)
	if s := r.check(); r.readable(recent-1) || !r.readable(recent) {
		t.Errorf("an hour later still readable: %d, or not: %d (%+v)", recent-1, recent, s)
	}
	r.expectLog("store compacted")
}

// TestNothingToCompact: a store without writes is left alone.
func TestNothingToCompact(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, upkeep.Policy{})
	r.mustPut("k", 1)
	for range 40 {
		r.check()
		r.clock.pass(10 * time.Minute)
	}
	if n := strings.Count(r.log.take(), "store compacted"); n != 1 {
		t.Errorf("compacted %d times, want once", n)
	}
}

// bloat leaves a database that is mostly unused.
func (r *rig) bloat(mib int) {
	r.t.Helper()
	for range mib {
		r.mustPut("k", 1<<20)
	}
	answer, err := r.client.Get(r.t.Context(), "k")
	if err == nil {
		_, err = r.client.Compact(r.t.Context(), answer.Header.Revision, clientv3.WithCompactPhysical())
	}
	// etcd counts what is in use when it commits the next write to its file.
	for end := time.Now().Add(10 * time.Second); err == nil; time.Sleep(10 * time.Millisecond) {
		r.mustPut("other", 1)
		s, statusErr := r.client.Status(r.t.Context(), r.endpoint)
		if err = statusErr; err == nil && s.DbSize > 2*s.DbSizeInUse {
			return
		}
		if time.Now().After(end) {
			err = errors.New("the compaction has freed nothing")
		}
	}
	r.t.Fatal(err)
}

func TestDefragmentAtQuietMoment(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, upkeep.Policy{DefragMin: 8 << 20, Quiet: time.Minute, Patience: time.Hour})
	r.bloat(16)
	before := r.check()
	for i := range 3 { // never a minute without a write
		r.clock.pass(50 * time.Second)
		r.mustPut("k", i)
		if s := r.check(); s.Size < before.Size {
			t.Fatalf("defragmented in the middle of writes: %d from %d", s.Size, before.Size)
		}
	}
	r.clock.pass(time.Minute)
	if s := r.check(); s.Size > before.Size/2 {
		t.Errorf("not defragmented at a quiet moment: %d of %d", s.Size, before.Size)
	}
	r.expectLog("store defragmented", "took=", "beforeMiB=", "afterMiB=")
}

func TestDefragmentWhenPatienceEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, upkeep.Policy{DefragMin: 8 << 20, Quiet: time.Hour, Patience: 10 * time.Minute})
	r.bloat(16)
	before := r.check()
	r.clock.pass(10 * time.Minute)
	r.mustPut("k", 1)
	if s := r.check(); s.Size > before.Size/2 {
		t.Errorf("not defragmented after 10 minutes without a quiet moment: %d of %d", s.Size, before.Size)
	}
}

func TestSmallDatabaseIsNotDefragmented(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, upkeep.Policy{})
	r.bloat(16)
	before := r.check()
	r.clock.pass(time.Hour)
	if s := r.check(); s.Size != before.Size {
		t.Errorf("a database of %d MiB was defragmented", before.Size>>20)
	}
}

// TestQuotaLadder uses up the quota with history: the keeper drops the history, and
// writes go on.
func TestQuotaLadder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 16<<20, upkeep.Policy{})
	// How much of the file is in use when the quota is reached depends on how much etcd
	// has written to it by then. If defragmenting alone is enough, history stays.
	logged := ""
	for round := 0; !strings.Contains(logged, "all history of the store was dropped"); round++ {
		if round == 5 {
			t.Fatalf("history was never dropped:\n%s", logged)
		}
		r.clock.pass(time.Hour)
		for i := 0; ; i++ {
			if err := r.put("k", 1<<20); errors.Is(err, rpctypes.ErrNoSpace) {
				break
			} else if err != nil || i > 500 {
				t.Fatalf("put %d: %v", i, err)
			}
		}
		begun := time.Now()
		s := r.check()
		t.Logf("made room in %s: %d of %d bytes", time.Since(begun), s.Size, s.Quota)
		if s.Alarmed(upkeep.NoSpace) {
			t.Errorf("after the recovery: %+v", s)
		}
		r.mustPut("k", 1<<20)
		logged += r.log.take()
	}
	if s := r.check(); s.Size > 8<<20 {
		t.Errorf("with no history there are %d bytes", s.Size)
	}
	for _, words := range []string{"the store takes no writes", "store defragmented", "the store takes writes again"} {
		if !strings.Contains(logged, words) {
			t.Errorf("the log does not say %q:\n%s", words, logged)
		}
	}
}

// TestQuotaOfLiveData uses up the quota with objects: only deleting them helps. The log
// says so, and the keeper does not try all the time.
func TestQuotaOfLiveData(t *testing.T) {
	t.Parallel()
	r := newRig(t, 16<<20, upkeep.Policy{BackoffMin: time.Second, BackoffMax: time.Minute})
	keys := 0
	for {
		if err := r.put(fmt.Sprint("k", keys), 64<<10); err == nil {
			keys++
		} else if !errors.Is(err, rpctypes.ErrNoSpace) || keys > 1000 {
			t.Fatalf("put %d: %v", keys, err)
		} else if r.clock.pass(time.Minute); r.check().Alarmed(upkeep.NoSpace) {
			break // it has made what room it can
		}
		r.check()
	}
	r.expectLog("the store is filling up", "--store-quota", "--store-retention")
	attempts := 0
	for range 120 {
		r.check()
		r.clock.pass(time.Second)
		attempts += strings.Count(r.log.take(), "msg=\"the store stays full")
	}
	if attempts < 3 || attempts > 10 {
		t.Errorf("%d attempts in 2 minutes, want pauses that double to a minute", attempts)
	}
	if s := r.keeper.Status(); !s.Alarmed(upkeep.NoSpace) {
		t.Fatalf("the alarm is lifted, and there is no room: %+v", s)
	}
	// A deletion makes the keeper try again soon.
	for i := range keys / 2 {
		if _, err := r.client.Delete(t.Context(), fmt.Sprint("k", i)); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	if s := r.check(); s.Alarmed(upkeep.NoSpace) {
		t.Errorf("after the deletion of half of it: %+v", s)
	}
	r.mustPut("k0", 1)
}

// TestAlarmOfStoreWithRoom restarts a server with a larger quota while the alarm is
// raised: the keeper drops no history.
func TestAlarmOfStoreWithRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small := newRigIn(t, dir, 16<<20, upkeep.Policy{})
	small.mustPut("k", 1)
	first, err := small.client.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = small.put("k", 1<<20)
	}
	small.stop()
	r := newRigIn(t, dir, 256<<20, upkeep.Policy{})
	if err := r.put("k", 1); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("the alarm is gone with the restart: %v", err)
	}
	if s := r.check(); s.Alarmed(upkeep.NoSpace) || s.Quota != 256<<20 {
		t.Errorf("%+v", s)
	}
	r.mustPut("k", 1)
	if !r.readable(first.Header.Revision) {
		t.Error("history was dropped where there was room")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t, 64<<20, upkeep.Policy{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.keeper)
	names := func() string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range families {
			out = append(out, strings.TrimPrefix(f.GetName(), "portolan_store_"))
		}
		return strings.Join(out, " ")
	}
	if got, want := names(), "defrag_seconds"; got != want {
		t.Errorf("before the first look: %s", got)
	}
	r.check()
	if got, want := names(), "alarm db_bytes db_in_use_bytes defrag_seconds free_bytes quota_bytes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := r.keeper.Compact(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	r.check()
	if !strings.Contains(names(), "compacted_revision") {
		t.Error("no compacted_revision after a compaction")
	}
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, upkeep.Policy{Interval: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.keeper.Run(ctx) }()
	for r.keeper.Status() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if _, err := r.keeper.Defragment(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestInProcess defragments a member that has no socket.
func TestInProcess(t *testing.T) {
	t.Parallel()
	m, err := member.Start(t.Context(), member.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := &rig{t: t, client: m.Client(), endpoint: "member"}
	r.bloat(16)
	c, err := m.Keeper().Defragment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.Before.Size < 16<<20 || c.After.Size > 8<<20 {
		t.Errorf("%d bytes before it and %d after", c.Before.Size, c.After.Size)
	}
	r.mustPut("k", 1)
}

func TestBadPolicy(t *testing.T) {
	t.Parallel()
	client := &clientv3.Client{}
	for _, p := range []upkeep.Policy{{Retention: time.Second}, {Interval: -1}, {DefragMin: -1}} {
		if _, err := upkeep.New(upkeep.Target{Client: client, DataDir: "/"}, p, slog.Default()); err == nil {
			t.Errorf("no error for %+v", p)
		}
	}
	if _, err := upkeep.New(upkeep.Target{}, upkeep.Policy{}, nil); err == nil {
		t.Error("no error without a client")
	}
}

func TestWantedSpace(t *testing.T) {
	t.Parallel()
	for total, want := range map[int64]int64{1 << 30: 1 << 30, 20 << 30: 2 << 30, 4 << 40: 8 << 30} {
		if got := (upkeep.Space{Total: total}).Wanted(); got != want {
			t.Errorf("of %d: %d, want %d", total, got, want)
		}
	}
	if s, err := upkeep.SpaceOf("/"); err != nil || s.Free <= 0 || s.Free > s.Total {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := upkeep.SpaceOf("/no/such/directory"); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
