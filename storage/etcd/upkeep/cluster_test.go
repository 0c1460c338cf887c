package upkeep_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// A fleet is a cluster of three members, each with its own Keeper, on one shared clock.
// The leader is the last rig.
type fleet struct {
	*rig // the first member
	rigs []*rig
	stop []func()

	mu      sync.Mutex
	busy    [3]bool
	overlap bool
	order   []int // the members defragmented so far
}

func newFleet(t *testing.T, quota int64, p upkeep.Policy) *fleet {
	t.Helper()
	members := etcdtest.Cluster(t, func(c *embed.Config) {
		c.QuotaBackendBytes = quota
		c.TickMs, c.ElectionMs = 50, 500 // so that the leader stays the leader on a busy machine
	})
	f := &fleet{}
	now := &clock{now: time.Now()}
	p.Now = now.Now
	var last *rig
	var stopLast func()
	for _, member := range members {
		endpoint := member.Endpoint
		r := &rig{t: t, client: etcdtest.Dial(t, endpoint), endpoint: endpoint, log: &journal{}, clock: now}
		s, err := r.client.Status(t.Context(), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if s.Leader == s.Header.MemberId {
			last, stopLast = r, member.Stop
			continue
		}
		f.rigs, f.stop = append(f.rigs, r), append(f.stop, member.Stop)
	}
	if last == nil {
		t.Fatal("the cluster has no leader")
	}
	f.rigs, f.stop = append(f.rigs, last), append(f.stop, stopLast)
	f.rig = f.rigs[0]
	for i, r := range f.rigs {
		roster := cluster.New(func(e string) (*clientv3.Client, error) { return dial.New(dial.Options{Endpoints: []string{e}}) }, r.endpoint)
		t.Cleanup(func() { _ = roster.Close() })
		target := upkeep.Target{
			Client: r.client, Endpoint: r.endpoint, DataDir: t.TempDir(), Roster: roster,
			Defragment: func() error { return f.defragment(i) },
		}
		var err error
		if r.keeper, err = upkeep.New(target, p, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// defragment defragments a member as its keeper would, and notes whether another is
// being defragmented.
func (f *fleet) defragment(i int) error {
	f.mu.Lock()
	busy := f.busy
	f.busy[i], f.order = true, append(f.order, i)
	f.mu.Unlock()
	for j, r := range f.rigs {
		if !busy[j] {
			continue
		}
		// It may be done, and the answer on its way. Until it is done, the member reports
		// the old size.
		if s, err := r.client.Status(f.t.Context(), r.endpoint); err != nil || s.DbSize > 12<<20 {
			f.mu.Lock()
			f.overlap = true
			f.mu.Unlock()
		}
	}
	_, err := f.rigs[i].client.Defragment(f.t.Context(), f.rigs[i].endpoint)
	f.mu.Lock()
	f.busy[i] = false
	f.mu.Unlock()
	return err
}

// inOrder fails unless the needy members were defragmented, one after the other. The
// leader must be the last, if it still is the first leader.
func (f *fleet) inOrder(needy ...int) {
	f.t.Helper()
	last := f.rigs[2]
	s, err := last.client.Status(f.t.Context(), last.endpoint)
	if err != nil {
		f.t.Fatal(err)
	}
	missing := slices.DeleteFunc(slices.Clone(needy), func(i int) bool { return slices.Contains(f.order, i) })
	early := s.Leader == s.Header.MemberId && slices.Contains(f.order[:max(0, len(f.order)-1)], 2)
	if len(missing) > 0 || f.overlap || early {
		f.t.Errorf("defragmented in the order %v, at the same time: %v; want %v, one at a time, and the leader, 2, last", f.order, f.overlap, needy)
	}
}

// lookUntilWritable has keepers look, every five seconds of the clock, until the store
// takes writes, and some times more, in which nothing may happen. On a busy machine a
// member may answer some looks too late.
func (f *fleet) lookUntilWritable(look func()) {
	f.t.Helper()
	for round, more := 0, 5; round < 100 && more > 0; round++ {
		look()
		f.clock.pass(5 * time.Second)
		if f.put("k", 1) == nil {
			more--
		}
	}
}

// needy returns the members whose size has reached a limit. The same data takes a
// varying part of the quota: it depends on how many writes a member had time to put into
// one commit.
func (f *fleet) needy(limit int64) (needy []int) {
	f.t.Helper()
	for i, r := range f.rigs {
		s, err := r.client.Status(f.t.Context(), r.endpoint)
		if err != nil {
			f.t.Fatal(err)
		}
		if s.DbSize >= limit {
			needy = append(needy, i)
		}
	}
	return needy
}

// checkAll has all keepers look at the same time.
func (f *fleet) checkAll() {
	f.t.Helper()
	var looking sync.WaitGroup
	for _, r := range f.rigs {
		looking.Go(func() {
			if err := r.keeper.Check(f.t.Context()); err != nil {
				f.t.Error(err)
			}
		})
	}
	looking.Wait()
}

// compactions returns how often each keeper has compacted since the last call.
func (f *fleet) compactions() (out [3]int) {
	for i, r := range f.rigs {
		out[i] = strings.Count(r.log.take(), "msg=\"store compacted\"")
	}
	return out
}

func (f *fleet) revision() int64 {
	f.t.Helper()
	answer, err := f.client.Get(f.t.Context(), "k")
	if err != nil {
		f.t.Fatal(err)
	}
	return answer.Header.Revision
}

// TestOneOfAClusterCompacts: in each interval one keeper compacts, the same one until it
// is gone. A store without writes is left alone.
func TestOneOfAClusterCompacts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, upkeep.Policy{Retention: time.Hour})
	round := func(keepers ...*rig) { // 6 minutes, in which each looks at its own time
		for _, r := range keepers {
			f.mustPut("k", 1)
			f.clock.pass(6 * time.Minute / time.Duration(len(keepers)))
			r.check()
		}
	}
	for range 11 {
		round(f.rigs...)
	}
	f.compactions()
	old := f.revision()
	for range 20 {
		round(f.rigs...)
	}
	if got := f.compactions(); got != [3]int{20, 0, 0} {
		t.Errorf("in 20 intervals the members compacted %v times, want one of them to do it 20 times", got)
	}
	if f.readable(old - 1) {
		t.Errorf("revision %d is still readable", old-1)
	}
	for range 10 { // without the first
		round(f.rigs[1:]...)
	}
	if got := f.compactions(); got[0] != 0 || got[1]*got[2] != 0 || got[1]+got[2] < 8 {
		t.Errorf("in 10 intervals without the first the members compacted %v times, want one of the others to do it", got)
	}
	for range 30 {
		f.clock.pass(6 * time.Minute)
		f.checkAll()
	}
	f.compactions()
	idle := f.revision()
	for range 30 {
		f.clock.pass(6 * time.Minute)
		f.checkAll()
	}
	if got := f.compactions(); got != [3]int{} || f.revision() != idle {
		t.Errorf("the members compacted %v times although nobody wrote; revision %d, was %d", got, f.revision(), idle)
	}
}

// settle waits until every member has noticed the space that a compaction freed.
func (f *fleet) settle() {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		f.mustPut("other", 1)
		grown := 0
		for _, r := range f.rigs {
			s, err := r.client.Status(f.t.Context(), r.endpoint)
			if err != nil {
				f.t.Fatal(err)
			}
			if s.DbSize > 2*s.DbSizeInUse {
				grown++
			}
		}
		if grown == len(f.rigs) {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("%d members have something to give back", grown)
		}
	}
}

// TestOneOfAClusterIsDefragmented: one member at a time, and the leader last.
func TestOneOfAClusterIsDefragmented(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, upkeep.Policy{DefragMin: 8 << 20, Quiet: time.Minute, Patience: time.Hour})
	f.bloat(16)
	f.settle()
	f.checkAll()
	for range 10 {
		f.clock.pass(time.Minute)
		f.checkAll()
	}
	f.inOrder(0, 1, 2)
	for i, r := range f.rigs {
		if s := r.keeper.Status(); s.Size > 8<<20 {
			t.Errorf("member %d still has %d MiB", i, s.Size>>20)
		}
	}
	if n, err := f.client.Leases(t.Context()); err != nil || len(n.Leases) != 0 {
		t.Errorf("locks are left: %v, %v", n, err)
	}
}

// TestDefragmentOnDemand: the error names a defragmentation under way, or a member that
// is away.
func TestDefragmentOnDemand(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, upkeep.Policy{DefragMin: 8 << 20, Quiet: time.Minute, Patience: time.Hour})
	f.bloat(16)
	f.settle()
	errs := make([]error, len(f.rigs))
	var asking sync.WaitGroup
	for i, r := range f.rigs {
		asking.Go(func() { _, errs[i] = r.keeper.Defragment(t.Context()) })
	}
	asking.Wait()
	done := 0
	for i, err := range errs {
		if err == nil {
			done++
		} else if !errors.Is(err, upkeep.ErrWait) {
			t.Errorf("member %d: %v", i, err)
		}
	}
	if done == 0 || f.overlap {
		t.Errorf("%d were defragmented, at the same time: %v", done, f.overlap)
	}
	f.order = nil
	f.bloat(16)
	f.settle()
	f.stop[1]()
	f.check()
	f.clock.pass(2 * time.Minute)
	f.check()
	if _, err := f.keeper.Defragment(t.Context()); !errors.Is(err, upkeep.ErrWait) || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("with a member away: %v", err)
	}
	if len(f.order) > 0 {
		t.Error("defragmented with a member away")
	}
	f.expectLog("the defragmentation of the store waits")
	f.clock.pass(time.Hour)
	f.check()
	f.expectLog("could not be defragmented", "unreachable")
}

// fill uses up the quota, with history, on every member.
func (f *fleet) fill() {
	f.t.Helper()
	for i := 0; ; i++ {
		if err := f.put("k", 1<<20); errors.Is(err, rpctypes.ErrNoSpace) {
			f.catchUp()
			return
		} else if err != nil || i > 500 {
			f.t.Fatalf("put %d: %v", i, err)
		}
	}
}

// catchUp waits until no member is behind the others.
func (f *fleet) catchUp() {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		applied := map[uint64]bool{}
		for _, r := range f.rigs {
			s, err := r.client.Status(f.t.Context(), r.endpoint)
			if err != nil {
				f.t.Fatal(err)
			}
			applied[s.RaftAppliedIndex] = true
		}
		if len(applied) == 1 {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("members have applied %v", slices.Collect(maps.Keys(applied)))
		}
	}
}

// TestQuotaLadderOfACluster: no lock can be taken, as that is a write. Still the members
// make room one after the other, the leader last.
func TestQuotaLadderOfACluster(t *testing.T) {
	t.Parallel()
	const quota = 16 << 20
	f := newFleet(t, quota, upkeep.Policy{})
	f.fill()
	needy := f.needy(quota / 10 * 9)
	if len(needy) == 0 {
		t.Fatal("no member has used up its quota")
	}
	f.lookUntilWritable(f.checkAll)
	f.mustPut("k", 1<<20)
	f.inOrder(needy...)
	if list, err := f.client.AlarmList(t.Context()); err != nil || len(list.Alarms) > 0 {
		t.Errorf("alarms: %v, %v", list, err)
	}
	f.catchUp()
	f.checkAll()
	for _, r := range f.rigs {
		r.expectLog("the store takes no writes", "the store takes writes again")
	}
}

// TestQuotaLadderWithoutAMember: once a member has been away for long, the others make
// room, those with less than 2 % left: each defragmentation stops one of the two that
// serve.
func TestQuotaLadderWithoutAMember(t *testing.T) {
	t.Parallel()
	const quota = 16 << 20
	f := newFleet(t, quota, upkeep.Policy{Patience: 10 * time.Minute})
	f.fill()
	needy := slices.DeleteFunc(f.needy(quota-quota/50), func(i int) bool { return i == 1 })
	f.stop[1]()
	look := func() { f.rigs[0].check(); f.rigs[2].check() }
	look()
	if len(f.order) != 0 || f.put("k", 1) == nil {
		t.Errorf("%v were defragmented with a member away", f.order)
	}
	f.clock.pass(10 * time.Minute)
	f.lookUntilWritable(look)
	f.inOrder(needy...)
	if slices.Contains(f.order, 1) {
		t.Errorf("%v were defragmented, and 1 is away", f.order)
	}
	f.mustPut("k", 1)
}

// TestDamage: all keepers report the damage of one member, by its id.
func TestDamage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, upkeep.Policy{})
	damaged := f.rigs[1].check().Member
	_, err := etcdserverpb.NewMaintenanceClient(f.client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: damaged, Alarm: etcdserverpb.AlarmType_CORRUPT,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.catchUp() // one member answers; the alarm reaches the others through the log
	f.checkAll()
	if s := f.keeper.Status(); !s.Alarmed(upkeep.Corrupt) || len(s.Raised[upkeep.Corrupt]) != 1 || s.Raised[upkeep.Corrupt][0] != damaged {
		t.Errorf("%+v, want the alarm of %d", s, damaged)
	}
	names := fmt.Sprintf("member=%x", damaged)
	f.expectLog("data of its members differs", names)
	f.rigs[1].expectLog("data of its members differs", names, "dir=")
}
