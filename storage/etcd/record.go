package etcd

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/history"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// packFrom is the size in bytes from which a record is compressed.
const packFrom = 32 << 10

var outcomes = map[storage.Outcome]envelope.Outcome{
	storage.Created:    envelope.Outcome_OUTCOME_CREATED,
	storage.Configured: envelope.Outcome_OUTCOME_CONFIGURED,
	storage.Deleted:    envelope.Outcome_OUTCOME_DELETED,
}

// recordOf returns the record of a batch. A store without history needs it to learn whether a
// transaction has landed.
func (s *Store) recordOf(ctx context.Context, steps []plan.Step, found *targets, now time.Time) *envelope.Record {
	if s.o.WithoutHistory {
		return &envelope.Record{Time: now.UnixMilli()}
	}
	return newRecord(steps, found, storage.OriginOf(ctx), now, s.recordLimit())
}

// newRecord leaves out previous values larger than limit: only another writer can have
// written them, and it must be possible to delete them.
func newRecord(steps []plan.Step, found *targets, origin storage.Origin, now time.Time, limit int) *envelope.Record {
	record := &envelope.Record{
		Time: now.UnixMilli(),
		User: origin.User, Address: origin.Address, Tool: origin.Tool, Message: origin.Message,
	}
	for _, step := range steps {
		if step.Outcome == storage.Unchanged {
			continue
		}
		entry := &envelope.Entry{
			Group: step.Key.Kind.Group, Kind: step.Key.Kind.Kind, Namespace: step.Key.Namespace, Name: step.Key.Name,
			Outcome: outcomes[step.Outcome],
		}
		if before := found.kvs[step.Key]; before != nil {
			entry.BeforeRevision = before.ModRevision
			if value := recorded(step.Before, before.Value); len(value) <= limit {
				entry.Before = value
			}
		}
		record.Entries = append(record.Entries, entry)
	}
	return record
}

// recorded returns the value of an object as its record keeps it. If the kind has parts
// for servers only, they are left out, and so are fields of a newer binary.
func recorded(before *config.Config, value []byte) []byte {
	shown := config.Shown(before)
	if shown == before {
		return value
	}
	value, err := Encode(shown, nil)
	if err != nil {
		return nil // the record then says that there was an object, not which
	}
	return value
}

// RecordTime returns when the batch of a record under HistoryPrefix was written. The
// error is an ErrUndecodable.
func RecordTime(kv *mvccpb.KeyValue) (time.Time, error) {
	record := &envelope.Record{}
	if err := open(kv, record); err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(record.Time).UTC(), nil
}

func encodeRecord(record *envelope.Record) ([]byte, error) {
	value, err := envelope.Encode(record)
	if err != nil || len(value) < packFrom {
		return value, err
	}
	entries, err := proto.Marshal(&envelope.Record{Entries: record.Entries})
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(entries); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	small := &envelope.Record{
		Time: record.Time, User: record.User, Address: record.Address, Tool: record.Tool, Message: record.Message,
		Packed: packed.Bytes(), Revision: record.Revision,
	}
	return envelope.Encode(small)
}

// decodeRecord is the inverse of encodeRecord. The error is an ErrUndecodable.
func decodeRecord(kv *mvccpb.KeyValue) (*envelope.Record, error) {
	record := &envelope.Record{}
	if err := open(kv, record); err != nil {
		return nil, err
	}
	if len(record.Packed) == 0 {
		return record, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(record.Packed))
	if err != nil {
		return nil, undecodable(kv, err.Error())
	}
	entries, err := io.ReadAll(r)
	if err != nil {
		return nil, undecodable(kv, err.Error())
	}
	record.Packed = nil
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(entries, record); err != nil {
		return nil, undecodable(kv, err.Error())
	}
	return record, nil
}

// isVoid says whether a value is a record that prevented a mutation.
func isVoid(kv *mvccpb.KeyValue) bool {
	record, err := decodeRecord(kv)
	return err == nil && record.Void
}

// openRecord decodes a record with its wanted entries, and, if before is set, with the
// previous objects.
func (s *Store) openRecord(kv *mvccpb.KeyValue, wanted func(config.Key) bool, before bool) (history.Record, error) {
	record, err := decodeRecord(kv)
	if err != nil {
		return history.Record{}, err
	}
	out := history.Record{
		Revision: cmp.Or(record.Revision, kv.CreateRevision),
		Time:     time.UnixMilli(record.Time).UTC(),
		Origin:   storage.Origin{User: record.User, Address: record.Address, Tool: record.Tool, Message: record.Message},
	}
	for _, e := range record.Entries {
		key := s.keyOf(e)
		if !wanted(key) {
			continue
		}
		entry := history.Entry{Key: key, Outcome: outcomeOf(e)}
		if before && e.BeforeRevision != 0 {
			entry.Before = s.before(key, e)
		}
		out.Entries = append(out.Entries, entry)
	}
	return out, nil
}

// keyOf returns a key without an API version if this binary does not know the kind.
func (s *Store) keyOf(e *envelope.Entry) config.Key {
	kind := config.GroupVersionKind{Group: e.Group, Kind: e.Kind}
	if known := s.Schemas().Kind(kind); known != nil {
		kind = known.GroupVersionKind
	}
	return config.Key{Kind: kind, Namespace: e.Namespace, Name: e.Name}
}

// before returns the object that an entry replaced.
func (s *Store) before(key config.Key, e *envelope.Entry) *config.Config {
	kv := &mvccpb.KeyValue{Key: []byte(ConfigKey(key)), Value: e.Before, ModRevision: e.BeforeRevision}
	return s.object(kv, key)
}

// object returns an object without a spec if its spec cannot be decoded.
func (s *Store) object(kv *mvccpb.KeyValue, key config.Key) *config.Config {
	if kind := s.Schemas().Kind(key.Kind); kind != nil {
		if object, _, err := decode(kv, key, kind, s.o.Domain); err == nil {
			return object
		}
	}
	return history.Unknown(key, version(kv.ModRevision))
}

// outcomeOf returns the name in the message for an outcome that this binary does not know.
func outcomeOf(e *envelope.Entry) storage.Outcome {
	for outcome, stored := range outcomes {
		if stored == e.Outcome {
			return outcome
		}
	}
	return storage.Outcome(strings.ToLower(strings.TrimPrefix(e.Outcome.String(), "OUTCOME_")))
}
