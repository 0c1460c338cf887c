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

// tries is how often a request could go unanswered before the deadline of its
// mutation: each waits for that part of the time there is.
const tries = 4

// sender sends the requests of one mutation.
type sender struct {
	*Store
	m *mutation
	// patience is how long one request may take.
	patience time.Duration
	// doubt is the error of the first transaction whose outcome it hid.
	doubt error
}

// land sends a mutation until it is known what became of it: the revision at
// which it landed, or what the targets are now that it has not and never will.
//
// An error in place of an answer proves nothing. So the targets and the record
// are read: the record is there, it landed; the targets are as they were, it may
// still land, and the same transaction is sent again, for only one of them can
// (mutation). The error is a storage.ErrOutcomeUnknown where etcd does not
// answer any more before the deadline.
func (s *Store) land(ctx context.Context, m *mutation) (revision int64, lost *targets, err error) {
	deadline, _ := ctx.Deadline()
	try := &sender{Store: s, m: m, patience: time.Until(deadline) / tries}
	for attempt := 1; ; attempt++ {
		now, revision, err := try.write(ctx)
		if err != nil || revision != 0 {
			return revision, nil, err
		}
		if now == nil {
			if now, err = try.look(ctx); err != nil {
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
		if err := backOff(ctx, attempt); err != nil {
			return 0, nil, try.unknown(err)
		}
	}
}

// write sends the transaction. It returns the revision at which it landed, or
// what the targets are where it did not, or neither, where that is in doubt. An
// error says that it did not land, and that nothing was sent before it.
func (t *sender) write(ctx context.Context) (now *targets, revision int64, err error) {
	answer, err := t.send(ctx, t.m.compares, t.m.writes, t.m.reads)
	switch {
	case err == nil && answer.Succeeded:
		t.m.remember(&t.recent, answer.Header)
		return nil, answer.Header.Revision, nil
	case err == nil:
		return t.targets(answer), 0, nil
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

// overQuota finds out what became of a transaction that the quota has no room
// for. etcd counts the room of each before it lets it in, and once more when its
// turn comes: one that finds it taken by then is done, and answered the same.
func (t *sender) overQuota(ctx context.Context, refusal error) (now *targets, revision int64, err error) {
	t.doubt = fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, refusal)
	now, err = t.look(ctx)
	t.doubt = nil
	if err != nil {
		return nil, 0, err
	}
	if revision = t.m.landed(now); revision != 0 {
		return nil, revision, nil
	}
	return nil, 0, t.writeError(refusal)
}

// look reads how the mutation stands, as often as it takes.
func (t *sender) look(ctx context.Context) (*targets, error) {
	for attempt := 1; ; attempt++ {
		answer, err := t.send(ctx, nil, t.m.reads, nil)
		if err == nil {
			return t.targets(answer), nil
		}
		if backOff(ctx, attempt) != nil {
			return nil, t.unknown(err)
		}
	}
}

// prevent makes sure that a transaction still under way cannot land, by a void
// record in its place, as often as it takes; a format that has changed does it,
// too. It returns the revision at which it landed if it was faster, else 0.
func (t *sender) prevent(ctx context.Context) (revision int64, err error) {
	key := recordKey(t.m.writeID)
	value, err := void(t.o.Now())
	if err != nil {
		return 0, t.unknown(err)
	}
	for attempt := 1; ; attempt++ {
		answer, err := t.send(ctx, []clientv3.Cmp{absent(key), t.m.found.format.unchanged()},
			[]clientv3.Op{clientv3.OpPut(key, string(value))}, []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(FormatKey)})
		switch {
		case err == nil && answer.Succeeded:
			return 0, nil
		case err == nil:
			return t.m.landed(t.targets(answer)), nil
		}
		if backOff(ctx, attempt) != nil {
			return 0, t.unknown(err)
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
	t.saw(seen, answer.Header)
	return answer, nil
}

// unknown is the error of a mutation whose outcome stays in doubt; last is why
// the last question had no answer.
func (t *sender) unknown(last error) error {
	return fmt.Errorf("%w; asked again until the deadline: %w", t.doubt, last)
}
