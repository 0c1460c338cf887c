package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
)

// tries is how many requests of a mutation may go unanswered before its deadline: each
// waits for that fraction of the time left.
const tries = 4

// perOperation is how long etcd may take for each operation of a large transaction. A
// timeout that is too short only makes etcd do the work again.
const perOperation = 200 * time.Microsecond

// sender sends the requests of one mutation.
type sender struct {
	*Store
	m *mutation
	// patience is the timeout of one request.
	patience time.Duration
	// doubt is the error of the first transaction whose answer was lost.
	doubt error
}

// land sends a mutation until its outcome is known. It returns the revision at which it
// landed, or the targets as they are now, if it did not and never will.
//
// An error instead of an answer proves nothing, so land reads the targets and the
// record. If the record exists, the mutation landed. If the targets are as before, it
// may still land, and land sends the same transaction again: only one of them can land
// (mutation). The error is a storage.ErrOutcomeUnknown where etcd does not answer again
// before the deadline.
func (s *Store) land(ctx context.Context, m *mutation) (revision int64, lost *targets, err error) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	try := &sender{Store: s, m: m, patience: max(left/tries, min(left*3/4, time.Duration(len(m.compares))*perOperation))}
	backoff := newBackoff()
	for {
		now, revision, err := try.write(ctx)
		if err != nil || revision != 0 {
			return revision, nil, err
		}
		if now == nil {
			if now, err = try.readBack(ctx); err != nil {
				return 0, nil, err
			}
		}
		if revision := m.landed(now); revision != 0 {
			return revision, nil, nil
		}
		atOnce, oneDay := m.mayLand(now)
		if !atOnce {
			if try.doubt != nil && oneDay {
				if revision, err = try.prevent(ctx); err != nil || revision != 0 {
					return revision, nil, err
				}
			}
			return 0, now, nil
		}
		if err := backoff.Wait(ctx); err != nil {
			return 0, nil, try.unknownOutcome(err)
		}
	}
}

// write sends the transaction. It returns the revision at which it landed; or the
// targets if it did not land; or neither if the outcome is in doubt. Unless it is
// ErrOutcomeUnknown, an error says that the transaction did not land and that no earlier
// one is in doubt.
func (t *sender) write(ctx context.Context) (now *targets, revision int64, err error) {
	answer, err := t.send(ctx, t.m.compares, t.m.writes, t.m.reads)
	switch {
	case err == nil && answer.Succeeded:
		t.m.remember(&t.recent, answer.Header)
		if t.m.found.format.Revision == 0 { // the transaction wrote the first format
			t.format.Store(&Format{StorageFormat: StorageFormat, MinReader: MinReader, Revision: answer.Header.Revision})
		}
		return nil, answer.Header.Revision, nil
	case err == nil:
		return t.targets(answer, &t.m.found.format), 0, nil
	case t.doubt != nil:
		return nil, 0, nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return t.overQuota(ctx, err)
	}
	if err = t.writeError(err); errors.Is(err, storage.ErrOutcomeUnknown) {
		t.doubt, err = err, nil
	}
	return nil, 0, err
}

// overQuota finds the outcome of a transaction that etcd answered with ErrNoSpace. etcd
// checks the quota before it accepts a transaction and again when it applies it. In the
// second case the transaction is applied and answered all the same.
// https://github.com/etcd-io/etcd/issues/16659
func (t *sender) overQuota(ctx context.Context, refusal error) (now *targets, revision int64, err error) {
	t.doubt = fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, refusal)
	now, err = t.readBack(ctx)
	t.doubt = nil
	if err != nil {
		return nil, 0, err
	}
	if revision = t.m.landed(now); revision != 0 {
		return nil, revision, nil
	}
	return nil, 0, t.writeError(refusal)
}

// readBack reads the targets and the record until etcd answers.
func (t *sender) readBack(ctx context.Context) (*targets, error) {
	backoff := newBackoff()
	for {
		answer, err := t.send(ctx, nil, t.m.reads, nil)
		if err == nil {
			return t.targets(answer, &t.m.found.format), nil
		}
		if backoff.Wait(ctx) != nil {
			return nil, t.unknownOutcome(err)
		}
	}
}

// prevent makes sure that a transaction under way cannot land: it puts a void record in
// its place, unless a changed format prevents it already. If the transaction landed
// first, prevent returns its revision, else 0.
func (t *sender) prevent(ctx context.Context) (revision int64, err error) {
	key := recordKey(t.m.writeID)
	value, err := voidRecord(t.o.Now())
	if err != nil {
		return 0, t.unknownOutcome(err)
	}
	backoff := newBackoff()
	for {
		answer, err := t.send(ctx, []clientv3.Cmp{absent(key), t.m.found.format.unchanged()},
			[]clientv3.Op{clientv3.OpPut(key, string(value))}, []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(FormatKey)})
		switch {
		case err == nil && answer.Succeeded:
			return 0, nil
		case err == nil:
			return t.m.landed(t.targets(answer, &t.m.found.format)), nil
		}
		if backoff.Wait(ctx) != nil {
			return 0, t.unknownOutcome(err)
		}
	}
}

// send sends one request and waits for its answer.
func (t *sender) send(ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	seen := t.seen.Load()
	txn := t.client.Txn(ctx)
	if len(compares) > 0 {
		txn = txn.If(compares...)
	}
	answer, err := txn.Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return nil, err
	}
	t.noteHeader(seen, answer.Header)
	return answer, nil
}

// unknownOutcome returns the error of a mutation whose outcome stays in doubt. last is the
// error of the last request.
func (t *sender) unknownOutcome(last error) error {
	return fmt.Errorf("%w; asked again until the deadline: %w", t.doubt, last)
}

// insist makes attempts at a change beside an object until one is done, with the error of that
// one. An attempt that is not done reads and decides again in the next: others were faster, or
// etcd did not answer.
func (t *sender) insist(ctx context.Context, attempt func() (done bool, err error)) error {
	backoff := newBackoff()
	for n := 1; ; n++ {
		done, err := attempt()
		if done {
			return err
		}
		if backoff.Wait(ctx) == nil {
			continue
		}
		if t.doubt != nil {
			return t.unknownOutcome(ctx.Err())
		}
		if err == nil {
			err = fmt.Errorf("others changed it before each of %d attempts", n)
		}
		return fmt.Errorf("%w: nothing was written: %w", storage.ErrUnavailable, err)
	}
}
