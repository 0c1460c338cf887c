package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// closeTimeout bounds the revocation of a lease. If that fails, the lease expires,
// since nobody keeps it alive.
const closeTimeout = 2 * time.Second

// A term is one candidacy, with its own lease, and the leadership if it wins.
type term struct {
	*Election
	lease    clientv3.LeaseID
	session  *concurrency.Session
	election *concurrency.Election
	// own is the context of the background calls of the term's clients.
	own  context.Context
	quit context.CancelFunc
}

// open takes a lease that is kept alive until the term is closed.
func (e *Election) open(ctx context.Context) (*term, error) {
	limited, cancel := context.WithTimeout(ctx, e.o.TTL)
	defer cancel()
	granted, err := e.client.Grant(limited, int64(e.o.TTL/time.Second))
	if err != nil {
		return nil, fmt.Errorf("take a lease: %w", err)
	}
	// The library cleans up under the context of its client, without a limit. So this
	// client ends with the context of the campaign, and the lease expires if need be.
	// https://github.com/etcd-io/etcd/issues/21128
	own, quit := context.WithCancel(ctx)
	client := clientv3.NewCtxClient(own)
	client.KV, client.Lease, client.Watcher = e.client.KV, e.client.Lease, e.client.Watcher
	t := &term{Election: e, lease: granted.ID, own: own, quit: quit}
	t.session, err = concurrency.NewSession(client, concurrency.WithLease(t.lease), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		t.revoke(ctx)
		return nil, fmt.Errorf("keep a lease alive: %w", err)
	}
	t.election = concurrency.NewElection(t.session, e.prefix())
	return t, nil
}

// close revokes the lease, which deletes the key, so that the next candidate leads.
func (t *term) close(ctx context.Context) {
	t.session.Orphan()
	t.revoke(ctx)
}

func (t *term) revoke(ctx context.Context) {
	t.quit()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_, err := t.client.Revoke(ctx, t.lease)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.o.Logger.Debug("the lease was not revoked, it expires by itself", "err", err)
	}
}

// campaign waits until this candidate leads, or its lease is gone.
func (t *term) campaign(ctx context.Context) error {
	// A watch on a member that has no leader must fail, not stay silent. A stream of its
	// own is needed, since an older stream keeps the old token of its user.
	// https://github.com/kubernetes/kubernetes/issues/89488
	ctx, cancel := context.WithCancelCause(dial.OwnStream(clientv3.WithRequireLeader(ctx)))
	defer cancel(nil)
	lost := fmt.Errorf("%w: the lease was lost before its turn came", ErrNotLeader)
	// A campaign does not notice by itself that its lease is gone.
	// https://github.com/etcd-io/etcd/pull/22387
	stop := context.AfterFunc(t.session.Ctx(), func() {
		cancel(lost)
		t.quit()
	})
	defer stop()
	err := t.election.Campaign(ctx, t.value(time.Time{}))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("campaign: %w", err)
	}
	return nil
}

// value is the value of the candidate's key.
func (t *term) value(since time.Time) string {
	value, err := json.Marshal(holding{ID: t.o.ID, Since: since})
	if err != nil {
		panic(err) // impossible: it is text and a time
	}
	return string(value)
}

// lead runs the job of an elected candidate. It logs the loss of the term, which is no
// error.
func (t *term) lead(ctx context.Context, job Job) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	safe, err := t.verify(ctx)
	if err == nil {
		err = t.proclaim(ctx)
	}
	if err != nil {
		return err
	}
	leader := newLeader(t, lose)
	context.AfterFunc(ctx, func() { t.leading.CompareAndSwap(leader.term, 0) })
	stop := context.AfterFunc(t.session.Ctx(), func() { lose(fmt.Errorf("%w: the lease was lost", ErrNotLeader)) })
	defer stop()
	t.terms.Add(1)
	t.leading.Store(leader.term)
	t.o.Logger.Info("leads", "term", leader.Term())

	var guard sync.WaitGroup
	guard.Go(func() { t.guard(ctx, safe, lose) })
	err = job(ctx, leader)
	why := context.Cause(ctx)
	lose(nil)
	guard.Wait()
	switch {
	case errors.Is(why, ErrNotLeader):
		t.o.Logger.Info("leads no more", "term", leader.Term(), "err", why)
		return nil
	case why == nil && err != nil:
		return fmt.Errorf("the job ended: %w", err)
	}
	t.o.Logger.Info("resigns", "term", leader.Term())
	return nil
}

// proclaim writes into the key since when this candidate leads.
func (t *term) proclaim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.o.TTL/3)
	defer cancel()
	if err := t.election.Proclaim(ctx, t.value(time.Now())); err != nil {
		return fmt.Errorf("proclaim: %w", err)
	}
	return nil
}

// guard ends the leadership when the key is gone, or when etcd has not confirmed it for
// so long that the lease may have expired.
func (t *term) guard(ctx context.Context, safe time.Time, lose context.CancelCauseFunc) {
	expiry := time.AfterFunc(time.Until(safe), func() {
		lose(fmt.Errorf("%w: etcd has not confirmed it, and the lease may expire", ErrNotLeader))
	})
	defer expiry.Stop()
	tick := time.NewTicker(t.o.TTL / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		safe, err := t.verify(ctx)
		switch {
		case errors.Is(err, ErrNotLeader):
			lose(err)
		case err != nil:
			t.o.Logger.Debug("leadership is not confirmed", "err", err)
		default:
			expiry.Reset(time.Until(safe))
		}
	}
}

// verify asks etcd for the key and the remaining TTL of the lease. The lease cannot
// expire before safe, which counts from before the request; etcd counts whole seconds.
func (t *term) verify(ctx context.Context) (safe time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.TTL/3)
	defer cancel()
	asked := time.Now()
	rest, err := t.client.TimeToLive(ctx, t.lease, clientv3.WithAttachedKeys())
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the lease: %w", err)
	}
	if rest.TTL <= 0 {
		return time.Time{}, fmt.Errorf("%w: the lease has expired", ErrNotLeader)
	}
	if !slices.ContainsFunc(rest.Keys, func(k []byte) bool { return string(k) == t.election.Key() }) {
		return time.Time{}, fmt.Errorf("%w: the key %s was removed", ErrNotLeader, t.election.Key())
	}
	return asked.Add(time.Duration(rest.TTL) * time.Second), nil
}
