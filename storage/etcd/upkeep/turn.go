package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
)

// A cluster serves while one of its members is defragmented, but not while two are. So
// each Keeper defragments its own member, one at a time, while all others answer. The
// leader comes last, since its pause delays the most.

// ErrWait says that a member has to wait for other members of its cluster.
var ErrWait = errors.New("not now")

// lockPrefix is the lock of the Keeper that defragments. lockTTL is how long the lock of
// a dead Keeper blocks the others.
const (
	lockPrefix = etcd.ElectionPrefix + "defragment"
	lockTTL    = 2 * time.Minute
	unlockTime = 2 * time.Second
)

// inStep is how many entries of the log a healthy member may be behind.
const inStep = 10_000

// others are the other members of a cluster; there are none in a cluster of one.
type others struct {
	members []cluster.Member
	// leads says that the member of this Keeper is the leader.
	leads bool
}

// others looks at the other members.
func (k *Keeper) others(ctx context.Context, s *Status) (others, error) {
	if k.target.Roster == nil {
		return others{}, nil
	}
	view, err := k.target.Roster.Look(ctx)
	if err != nil {
		return others{}, fmt.Errorf("look at the members of the store's cluster: %w", err)
	}
	out := others{leads: s.leader == s.Member}
	for _, m := range view.Members {
		if m.ID != s.Member {
			out.members = append(out.members, m)
		}
	}
	return out, nil
}

// healthy returns an ErrWait that names a member that is away.
func (o others) healthy() error {
	for i := range o.members {
		if m := &o.members[i]; !healthy(m) {
			return fmt.Errorf("%w: member %s is %s, and a cluster can spare one at a time", ErrWait, m, m.Status())
		}
	}
	return nil
}

func healthy(m *cluster.Member) bool {
	if m.Status() == cluster.Unstarted {
		return m.Learner // a learner has no vote that could be missing
	}
	return m.Answer != nil && m.Answer.Leader != 0 && m.Answer.Committed <= m.Answer.Applied+inStep
}

// statusOf returns what a member reports about its database.
func statusOf(m *cluster.Member) *Status {
	return &Status{Size: m.Answer.Size, InUse: m.Answer.InUse, Quota: m.Answer.Quota}
}

// mayDefragment returns an ErrWait unless it is the turn of this member. waited is how
// long the defragmentation has been due.
func (k *Keeper) mayDefragment(o others, waited time.Duration) error {
	if err := o.healthy(); err != nil || !o.leads || waited >= k.p.Patience {
		return err
	}
	for i := range o.members {
		if m := &o.members[i]; m.Answer != nil && k.worthDefragmenting(statusOf(m)) {
			return fmt.Errorf("%w: member %s comes first, as this one leads", ErrWait, m)
		}
	}
	return nil
}

// mayClear returns an ErrWait unless it is the turn of this member, in a cluster whose
// quota is used up. There are no locks then, as they are writes. So the order follows
// from what all can see: by id, the leader last, each once those before it have freed
// what they can. Members that are not healthy delay this until Patience ends; they miss
// no writes meanwhile, as there are none.
func (k *Keeper) mayClear(o others, s *Status, waited time.Duration) error {
	for i := range o.members {
		m := &o.members[i]
		switch {
		case waited >= k.p.Patience:
		case !healthy(m):
			return fmt.Errorf("%w: member %s is %s", ErrWait, m, m.Status())
		case m.Answer != nil && comesBefore(m, s) && !needsNoDefragmentation(statusOf(m), waited):
			return fmt.Errorf("%w: member %s comes first", ErrWait, m)
		}
	}
	return nil
}

func comesBefore(m *cluster.Member, s *Status) bool {
	mLeads, sLeads := m.ID == s.leader, s.Member == s.leader
	if mLeads != sLeads {
		return sLeads
	}
	return cmp.Less(m.ID, s.Member)
}

// settling is how long a member may take to show the space freed by a compaction that
// another member requested.
const settling = 30 * time.Second

// needsNoDefragmentation says whether a member needs no defragmentation to make room, or would gain
// little from it.
func needsNoDefragmentation(s *Status, waited time.Duration) bool {
	return s.hasAmpleRoom(s.Size) || waited >= settling && s.Size-s.InUse <= s.Size/10
}

// mayDisarm returns an ErrWait while another member has no room, or will soon have more.
// A silent member may be full.
func (k *Keeper) mayDisarm(o others, waited time.Duration) error {
	for i := range o.members {
		m := &o.members[i]
		if m.Status() == cluster.Unstarted || m.Answer == nil && waited >= k.p.Patience {
			continue
		}
		if m.Answer == nil || !statusOf(m).hasRoom(m.Answer.Size) || waited < k.p.Patience && !needsNoDefragmentation(statusOf(m), waited) {
			return fmt.Errorf("%w: member %s has no room yet", ErrWait, m)
		}
	}
	return nil
}

// lockDefragmentation takes the lock of the one member that is being defragmented, unless there
// are no others. The error is an ErrWait if another has it.
func (k *Keeper) lockDefragmentation(ctx context.Context, o others, s *Status) (unlock func(), err error) {
	if len(o.members) == 0 || s.Alarmed(NoSpace) {
		return func() {}, nil
	}
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	client := k.target.Client
	lease, err := client.Grant(limited, int64(lockTTL/time.Second))
	if err != nil {
		return nil, fmt.Errorf("take a lease: %w", err)
	}
	unlock = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
		defer cancel()
		if _, err := client.Revoke(ctx, lease.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			k.log.Debug("the lock of defragmentation was not given back, it ends by itself", "err", err)
		}
	}
	session, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		unlock()
		return nil, fmt.Errorf("keep a lease alive: %w", err)
	}
	revoke := unlock
	unlock = func() { session.Orphan(); revoke() }
	err = concurrency.NewMutex(session, lockPrefix).TryLock(clientv3.WithRequireLeader(limited))
	if err == nil {
		return unlock, nil
	}
	unlock()
	if errors.Is(err, concurrency.ErrLocked) {
		return nil, fmt.Errorf("%w: another member is being defragmented", ErrWait)
	}
	return nil, fmt.Errorf("lock %s: %w", lockPrefix, err)
}
