package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
)

// Discard deletes a key of the mesh tree that this binary cannot read: a key of no known
// kind, or one whose value cannot be decoded. The key must have the mod revision that
// the caller saw. The history gets a record with the value. Discard returns the
// revision of the deletion.
//
// The error is a storage.ErrNotFound or ErrConflict where the key is gone or has
// another revision, and an ErrInvalid where it is sound: Delete is for objects.
func (s *Store) Discard(ctx context.Context, key string, revision int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	landed, err := s.discard(ctx, key, revision)
	if err != nil {
		return "", fmt.Errorf("delete %q: %w", key, err)
	}
	return version(landed), nil
}

func (s *Store) discard(ctx context.Context, key string, revision int64) (int64, error) {
	if !strings.HasPrefix(key, MeshPrefix) {
		return 0, fmt.Errorf("%w: it is not under %s", storage.ErrInvalid, MeshPrefix)
	}
	answer, err := s.client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(FormatKey)).Commit()
	if err != nil {
		return 0, fmt.Errorf("nothing was written: %w", s.readError(err))
	}
	kv, format := pairOf(answer, 0), formatOf(answer, 1)
	if err := s.mayDiscard(key, kv, revision, format); err != nil {
		return 0, err
	}
	value, err := encodeRecord(s.discarded(kv, storage.OriginOf(ctx)))
	if err != nil {
		return 0, fmt.Errorf("%w: the record of history: %w", storage.ErrInvalid, err)
	}
	d := &discarding{key: key, revision: revision, format: format, record: recordKey(uuid.New()), value: string(value)}
	return s.landDiscard(ctx, d)
}

// mayDiscard says why a key may not be discarded, given its pair; nil where it may.
func (s *Store) mayDiscard(key string, kv *mvccpb.KeyValue, revision int64, format Format) error {
	switch {
	case kv == nil:
		return storage.ErrNotFound
	case kv.ModRevision != revision:
		return &storage.ConflictError{Key: looseKey(key), Expected: version(revision), Actual: version(kv.ModRevision)}
	}
	if s.decodable(kv) {
		return fmt.Errorf("%w: it is sound: what is an object is deleted as such", storage.ErrInvalid)
	}
	return format.Writable()
}

// decodable says whether a pair of the mesh tree can be decoded.
func (s *Store) decodable(kv *mvccpb.KeyValue) bool {
	for _, tree := range meshTrees {
		if strings.HasPrefix(string(kv.Key), tree.Prefix) {
			_, err := tree.Decode(kv, s.Schemas(), s.o.Domain)
			return err == nil
		}
	}
	return false
}

// discarding is the transaction that deletes one key. It may be sent many times, and
// lands at most once.
type discarding struct {
	key           string
	revision      int64
	format        Format
	record, value string
}

// landDiscard sends the transaction until its outcome is known.
func (s *Store) landDiscard(ctx context.Context, d *discarding) (int64, error) {
	deadline, _ := ctx.Deadline()
	try := &sender{Store: s, patience: time.Until(deadline) / tries}
	backoff := newBackoff()
	for {
		answer, err := try.send(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(d.key), "=", d.revision), d.format.unchanged(), absent(d.record)},
			[]clientv3.Op{clientv3.OpDelete(d.key), clientv3.OpPut(d.record, d.value)},
			[]clientv3.Op{clientv3.OpGet(d.key), clientv3.OpGet(FormatKey), clientv3.OpGet(d.record)})
		switch {
		case err == nil && answer.Succeeded:
			return answer.Header.Revision, nil
		case err == nil:
			if record := pairOf(answer, 2); record != nil {
				return record.CreateRevision, nil
			}
			if err := s.mayDiscard(d.key, pairOf(answer, 0), d.revision, formatOf(answer, 1)); err != nil {
				return 0, err
			}
			return 0, fmt.Errorf("%w: the storage format changed meanwhile, nothing was written: try again", storage.ErrUnavailable)
		case try.doubt == nil:
			if err = s.writeError(err); !errors.Is(err, storage.ErrOutcomeUnknown) {
				return 0, err
			}
			try.doubt = err
		}
		if err := backoff.Wait(ctx); err != nil {
			return 0, try.unknownOutcome(err)
		}
	}
}

func (s *Store) discarded(kv *mvccpb.KeyValue, origin storage.Origin) *envelope.Record {
	key := looseKey(string(kv.Key))
	entry := &envelope.Entry{
		Group: key.Kind.Group, Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name,
		Outcome: envelope.Outcome_OUTCOME_DELETED, BeforeRevision: kv.ModRevision,
	}
	if len(kv.Value) <= s.recordLimit() {
		entry.Before = kv.Value
	}
	return &envelope.Record{
		Time: s.o.Now().UnixMilli(),
		User: origin.User, Address: origin.Address, Tool: origin.Tool, Message: origin.Message,
		Entries: []*envelope.Entry{entry},
	}
}

// looseKey reads a key of any form. If it is not the key of an object, all of it becomes
// the name. The result is valid text.
func looseKey(key string) config.Key {
	path, object := strings.CutPrefix(key, ConfigPrefix)
	path = strings.ToValidUTF8(strings.TrimPrefix(path, MeshPrefix), "\uFFFD")
	if key, ok := config.KeyOfPath(path); object && ok {
		return key
	}
	return config.Key{Name: path}
}

// pairOf returns the pair that the i-th read of a transaction found, nil for none.
func pairOf(answer *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	for _, kv := range answer.Responses[i].GetResponseRange().GetKvs() {
		return kv
	}
	return nil
}

// formatOf returns the format that the i-th read of a transaction found.
func formatOf(answer *clientv3.TxnResponse, i int) Format {
	if kv := pairOf(answer, i); kv != nil {
		return DecodeFormat(kv)
	}
	return Format{}
}
