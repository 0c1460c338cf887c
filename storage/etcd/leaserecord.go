package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// leaseCursor has the revision up to which the ends of leases are in the history. It is read
// and written as a floor is.
const leaseCursor = MetaPrefix + "leases"

// RecordLeases writes a record of history for each lease that ends with objects under it, also
// for those that ended since an earlier call, as far back as etcd keeps its revisions. etcd
// itself deletes these objects, so no transaction could have written the record. The record has
// the revision of the deletion. RecordLeases calls ended for the objects of each record. One
// server at a time calls it: it returns an error where another has written meanwhile, and when
// the watch ends.
func (s *Store) RecordLeases(ctx context.Context, ended func(objects int)) error {
	r := &leaseRecorder{Store: s, ended: ended}
	if err := r.start(ctx); err != nil {
		return fmt.Errorf("record the ends of leases: %w", err)
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for {
		compacted, err := r.follow(ctx)
		if err != nil {
			return fmt.Errorf("record the ends of leases: %w", err)
		}
		s.o.Log.InfoContext(ctx, "leases that ended longer ago have no record of history", "revision", compacted)
		r.at = compacted - 1
	}
}

type leaseRecorder struct {
	*Store
	ended func(objects int)
	// at is the revision up to which all is recorded, and cursor the mod revision of
	// leaseCursor.
	at, cursor int64
}

// start reads the cursor, and writes it if there is none.
func (r *leaseRecorder) start(ctx context.Context) error {
	answer, err := r.get(ctx, leaseCursor)
	if err != nil {
		return r.readError(err)
	}
	if len(answer.Kvs) > 0 {
		r.cursor = answer.Kvs[0].ModRevision
		if r.at, err = decodeFloor(answer.Kvs[0]); err != nil {
			r.leaveOut(ctx, answer.Kvs[0], err)
			r.at = r.cursor
		}
		return nil
	}
	r.at = answer.Header.Revision
	return r.write(ctx, nil)
}

// follow records ends until the watch fails. If etcd has compacted what is to be read, it
// returns the revision from which on there is something.
func (r *leaseRecorder) follow(ctx context.Context) (compacted int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := r.client.Watch(ctx, LeasePrefix, clientv3.WithPrefix(), clientv3.WithRev(r.at+1), clientv3.WithPrevKV(), clientv3.WithFilterPut())
	for answer := range watch {
		if err := answer.Err(); errors.Is(err, rpctypes.ErrCompacted) {
			return answer.CompactRevision, nil
		} else if err != nil {
			return 0, r.readError(err)
		}
		for revision, events := range byRevision(answer.Events) {
			if err := r.record(ctx, revision, events); err != nil {
				return 0, err
			}
		}
	}
	return 0, fmt.Errorf("%w: the watch of etcd has ended", storage.ErrUnavailable)
}

// byRevision divides events, which are in the order of their revisions.
func byRevision(events []*clientv3.Event) func(yield func(int64, []*clientv3.Event) bool) {
	return func(yield func(int64, []*clientv3.Event) bool) {
		for len(events) > 0 {
			revision := events[0].Kv.ModRevision
			n := slices.IndexFunc(events, func(e *clientv3.Event) bool { return e.Kv.ModRevision != revision })
			if n < 0 {
				n = len(events)
			}
			if !yield(revision, events[:n]) {
				return
			}
			events = events[n:]
		}
	}
}

// record writes the record of the leases that ended at a revision.
func (r *leaseRecorder) record(ctx context.Context, revision int64, events []*clientv3.Event) error {
	origin := storage.LeaseOrigin()
	out := &envelope.Record{Time: r.o.Now().UnixMilli(), User: origin.User, Message: origin.Message, Revision: revision}
	for _, e := range events {
		entry, err := r.went(ctx, revision, e.PrevKv)
		if err != nil {
			return err
		}
		if entry != nil {
			out.Entries = append(out.Entries, entry)
		}
	}
	if r.at = revision; len(out.Entries) == 0 {
		return nil // somebody had deleted the objects before
	}
	if err := r.write(ctx, out); err != nil {
		return err
	}
	r.ended(len(out.Entries))
	return nil
}

// went returns the entry of the object that went with the key beside it; nil if there was none
// under the same lease any more.
func (r *leaseRecorder) went(ctx context.Context, revision int64, beside *mvccpb.KeyValue) (*envelope.Entry, error) {
	if beside == nil {
		return nil, nil // compacted
	}
	path := strings.TrimPrefix(string(beside.Key), LeasePrefix)
	key, err := ParseConfigKey(ConfigPrefix+path, r.Schemas())
	if err != nil {
		return nil, nil //nolint:nilerr // another program wrote the key
	}
	answer, err := r.get(ctx, ConfigKey(key), clientv3.WithRev(revision-1))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return lost(key, nil), nil
	case err != nil:
		return nil, r.readError(err)
	case len(answer.Kvs) == 0 || answer.Kvs[0].Lease != beside.Lease:
		return nil, nil
	}
	return lost(key, answer.Kvs[0]), nil
}

// lost returns the entry of an object that is gone; before is its value, nil if that is unknown.
func lost(key config.Key, before *mvccpb.KeyValue) *envelope.Entry {
	return &envelope.Entry{
		Group: key.Kind.Group, Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name,
		Outcome: envelope.Outcome_OUTCOME_DELETED, Before: before.GetValue(), BeforeRevision: before.GetModRevision(),
	}
}

// write writes a record, nil for none, and how far the records reach.
func (r *leaseRecorder) write(ctx context.Context, record *envelope.Record) error {
	at, err := encodeFloor(r.at)
	if err != nil {
		return err
	}
	writes := []SideWrite{{Key: leaseCursor, Value: at, Revision: r.cursor}}
	if record != nil {
		value, err := encodeRecord(record)
		if err != nil {
			return err
		}
		writes = append(writes, SideWrite{Key: HistoryPrefix + uuid.NewString(), Value: value})
	}
	done, err := r.WriteSide(ctx, writes)
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("%w: another server records them, or the storage format has just changed", storage.ErrConflict)
	}
	answer, err := r.get(ctx, leaseCursor, clientv3.WithKeysOnly())
	if err != nil {
		return r.readError(err)
	}
	for _, kv := range answer.Kvs {
		r.cursor = kv.ModRevision
	}
	return nil
}
