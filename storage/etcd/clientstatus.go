package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

var _ storage.StatusKeeper = (*Store)(nil)

// ClientStatusKey returns the key of the conditions that clients set on an object.
func ClientStatusKey(key config.Key) string { return ClientStatusPrefix + key.Path() }

// DecodeClientStatus decodes the conditions that clients set on an object, of a key under
// ClientStatusPrefix, with its mod revision. The error is an ErrForeignKey or an ErrUndecodable.
func DecodeClientStatus(kv *mvccpb.KeyValue, schemas schema.Set) (*status.Clients, error) {
	value := &envelope.ClientStatus{}
	if _, err := openStatus(kv, ClientStatusPrefix, schemas, value); err != nil {
		return nil, err
	}
	return clientsOf(value, kv.ModRevision), nil
}

func clientsOf(value *envelope.ClientStatus, revision int64) *status.Clients {
	out := &status.Clients{UID: value.Uid, Revision: revision}
	for _, c := range value.Conditions {
		one := status.ClientCondition{
			Condition:  status.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: timeOf(c.Since)},
			Generation: c.Generation, Manager: c.Manager,
		}
		if c.Probed != 0 {
			one.Probed = timeOf(c.Probed)
		}
		out.Conditions = append(out.Conditions, one)
	}
	return out
}

func encodeClients(key config.Key, uid string, conditions []status.ClientCondition, writeID []byte) ([]byte, error) {
	out := &envelope.ClientStatus{
		Group: key.Kind.Group, Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name, Uid: uid, WriteId: writeID,
	}
	for _, c := range conditions {
		one := &envelope.ClientCondition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.Since.UnixNano(), Generation: c.Generation, Manager: c.Manager,
		}
		if !c.Probed.IsZero() {
			one.Probed = c.Probed.UnixNano()
		}
		out.Conditions = append(out.Conditions, one)
	}
	return envelope.Encode(out)
}

// SetConditions implements storage.StatusKeeper. It is one transaction, conditional on the object
// and its conditions as read. The conditions are under the lease of their object.
func (s *Store) SetConditions(ctx context.Context, update storage.StatusUpdate) (*status.Clients, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	key, err := plan.Key(s.Schemas(), update.Key.Kind, update.Key.Name, update.Key.Namespace)
	if err != nil {
		return nil, fmt.Errorf("set conditions of %s: %w", update.Key, err)
	}
	update.Key = key
	deadline, _ := ctx.Deadline()
	w := &conditionsWrite{
		sender: &sender{Store: s, patience: time.Until(deadline) / tries},
		update: update, key: ClientStatusKey(key), writeID: uuid.New(),
	}
	var result *status.Clients
	err = w.insist(ctx, func() (done bool, err error) {
		result, done, err = w.attempt(ctx)
		return done, err
	})
	if err != nil {
		return nil, fmt.Errorf("set conditions of %s: %w", key, err)
	}
	return result, nil
}

type conditionsWrite struct {
	*sender
	update  storage.StatusUpdate
	key     string
	writeID uuid.UUID
}

// attempt reads, decides and writes once. If done is false, the caller tries again.
func (w *conditionsWrite) attempt(ctx context.Context) (result *status.Clients, done bool, err error) {
	answer, err := w.send(ctx, nil, []clientv3.Op{clientv3.OpGet(ConfigKey(w.update.Key)), clientv3.OpGet(w.key), clientv3.OpGet(FormatKey)}, nil)
	if err != nil {
		return nil, false, w.readError(err)
	}
	object, held, format := pairOf(answer, 0), pairOf(answer, 1), formatOf(answer, 2)
	if err := format.Writable(); err != nil {
		return nil, true, err
	}
	if object == nil {
		return nil, true, storage.ErrNotFound
	}
	wrapper, err := openObject(object, w.update.Key)
	if err != nil {
		return nil, true, err
	}
	known := &status.Clients{UID: wrapper.Uid}
	if value, mine := w.open(held, wrapper.Uid); value != nil {
		if known = clientsOf(value, held.ModRevision); mine {
			return known, true, nil
		}
	}
	next, err := w.decide(known, object.ModRevision, answer.Header.Revision)
	switch {
	case errors.Is(err, storage.ErrConflict) && w.doubt != nil:
		return nil, true, w.unknownOutcome(err) // its own earlier write may be in the way
	case err != nil:
		return nil, true, err
	case sameConditions(next, known.Conditions):
		return known, true, nil
	}
	value, err := encodeClients(w.update.Key, wrapper.Uid, next, w.writeID[:])
	if err != nil {
		return nil, true, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	put := clientv3.OpPut(w.key, string(value), clientv3.WithLease(clientv3.LeaseID(object.Lease)))
	if answer, err = w.send(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(ConfigKey(w.update.Key)), "=", object.ModRevision),
		clientv3.Compare(clientv3.ModRevision(w.key), "=", held.GetModRevision()),
		format.unchanged(),
	}, []clientv3.Op{put}, nil); err != nil {
		if err = w.writeError(err); errors.Is(err, storage.ErrOutcomeUnknown) {
			w.doubt = err
		}
		return nil, w.doubt == nil, err
	}
	return &status.Clients{UID: wrapper.Uid, Conditions: next, Revision: answer.Header.Revision}, answer.Succeeded, nil
}

// open returns the stored conditions of the object with a uid, nil for none, and whether this write
// stored them.
func (w *conditionsWrite) open(kv *mvccpb.KeyValue, uid string) (value *envelope.ClientStatus, mine bool) {
	value = &envelope.ClientStatus{}
	if kv == nil || open(kv, value) != nil || value.Uid != uid {
		return nil, false
	}
	return value, bytes.Equal(value.WriteId, w.writeID[:])
}

// decide checks the conditions of the update and returns what is to be stored.
func (w *conditionsWrite) decide(known *status.Clients, object, now int64) ([]status.ClientCondition, error) {
	if w.update.UID != "" && w.update.UID != known.UID {
		return nil, fmt.Errorf("%w: uid is %s, and the request expects %s: the object was deleted and made anew", storage.ErrConflict, known.UID, w.update.UID)
	}
	if stands := max(object, known.Revision); changedSince(w.update.ResourceVersion, stands, now) {
		return nil, &storage.ConflictError{Key: w.update.Key, Expected: w.update.ResourceVersion, Actual: version(stands)}
	}
	return w.update.Change(known.Conditions)
}

func sameConditions(a, b []status.ClientCondition) bool {
	return slices.EqualFunc(a, b, func(x, y status.ClientCondition) bool {
		same := x.Since.Equal(y.Since) && x.Probed.Equal(y.Probed)
		x.Since, x.Probed = y.Since, y.Probed
		return same && x == y
	})
}
