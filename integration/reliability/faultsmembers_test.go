package reliability_test

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// aLeader returns the leader, or any member if there is none.
func (r *rig) aLeader(ctx context.Context) *etcdMember {
	if m := r.cluster.leader(ctx); m != nil {
		return m
	}
	return r.aMember()
}

func (r *rig) aMember() *etcdMember { return r.members()[r.pick(3)] }

func killLeader(ctx context.Context, r *rig) error { return r.crash(ctx, r.aLeader(ctx)) }
func killMember(ctx context.Context, r *rig) error { return r.crash(ctx, r.aMember()) }
func killMembers(ctx context.Context, r *rig) error {
	return r.crash(ctx, r.members()...)
}

// crash kills members and starts them again.
func (r *rig) crash(ctx context.Context, members ...*etcdMember) error {
	for _, m := range members {
		m.process.Kill()
	}
	pass(ctx, r.between(0, 3*time.Second))
	for _, m := range members {
		m.start()
	}
	return r.awaitQuorum(ctx)
}

func (r *rig) awaitQuorum(ctx context.Context) error {
	return await(ctx, 30*time.Second, func() error {
		return r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Get(ctx, "x")
			return err
		})
	})
}

func pauseLeader(ctx context.Context, r *rig) error {
	m := r.aLeader(ctx)
	m.process.Pause()
	pass(ctx, r.between(2*time.Second, 6*time.Second))
	m.process.Resume()
	return r.awaitQuorum(ctx)
}

func isolateLeader(ctx context.Context, r *rig) error {
	r.cluster.isolate(ctx, r.aLeader(ctx))
	pass(ctx, r.between(3*time.Second, 7*time.Second))
	r.cluster.mend()
	return r.awaitQuorum(ctx)
}

// scatter cuts all members off from each other, so there is no quorum.
func scatter(ctx context.Context, r *rig) error {
	r.cluster.scatter()
	pass(ctx, r.between(2*time.Second, 6*time.Second))
	r.cluster.mend()
	return r.awaitQuorum(ctx)
}

func cutClients(ctx context.Context, r *rig) error {
	s := r.anyServer()
	for range 3 {
		for _, l := range s.links {
			l.Cut()
		}
		pass(ctx, r.between(0, 1500*time.Millisecond))
		for _, l := range s.links {
			l.Mend()
		}
		pass(ctx, r.between(0, 500*time.Millisecond))
	}
	return nil
}

func holdClients(ctx context.Context, r *rig) error {
	s := r.anyServer()
	for _, l := range s.links {
		l.Hold()
	}
	pass(ctx, r.between(time.Second, 5*time.Second))
	for _, l := range s.links {
		if r.pick(2) == 0 {
			l.Cut() // also drops the held bytes
		}
		l.Mend()
	}
	return nil
}

// loseAnswers holds back the store's answers to a server, and then cuts the connection. So the
// server does not know the outcome of its writes.
func loseAnswers(ctx context.Context, r *rig) error {
	s := r.anyServer()
	for range 8 {
		for _, l := range s.links {
			l.HoldAnswers()
		}
		pass(ctx, r.between(100*time.Millisecond, 400*time.Millisecond))
		for _, l := range s.links {
			l.Cut()
			l.Mend()
		}
		pass(ctx, r.between(100*time.Millisecond, 400*time.Millisecond))
	}
	return nil
}

// swallowClients drops everything between a server and its store until they detect that their
// connections are dead.
func swallowClients(ctx context.Context, r *rig) error {
	s := r.anyServer()
	for _, l := range s.links {
		l.Swallow()
	}
	pass(ctx, 14*time.Second)
	for _, l := range s.links {
		l.Mend()
	}
	return nil
}

// compactBehindCut is compactBehind for a server that is cut off from its store.
func compactBehindCut(ctx context.Context, r *rig) error {
	s := r.anyServer()
	for _, l := range s.links {
		l.Cut()
	}
	defer func() {
		for _, l := range s.links {
			l.Mend()
		}
	}()
	r.leaveBehind(ctx)
	return nil
}

func loseMember(ctx context.Context, r *rig) error {
	m := r.aMember()
	m.process.Kill()
	return r.cluster.replace(ctx, m)
}
