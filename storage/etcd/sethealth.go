package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var _ storage.HealthKeeper = (*Store)(nil)

func hasHealth(kind config.GroupVersionKind) bool {
	return kind.Group == schema.WorkloadEntry.Group && kind.Kind == schema.WorkloadEntry.Kind
}

// SetHealth implements storage.HealthKeeper, for WorkloadEntries. It is one transaction,
// conditional on the object and its health as read. If one of them changed meanwhile,
// SetHealth reads and decides again. The health is under the lease of its object.
func (s *Store) SetHealth(ctx context.Context, update storage.HealthUpdate) (storage.HealthResult, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	key, err := plan.Key(s.Schemas(), update.Key.Kind, update.Key.Name, update.Key.Namespace)
	if err == nil && !hasHealth(key.Kind) {
		err = fmt.Errorf("%w: objects of its kind have none", storage.ErrInvalid)
	}
	if err != nil {
		return storage.HealthResult{}, fmt.Errorf("set the health of %s: %w", update.Key, err)
	}
	update.Key = key
	deadline, _ := ctx.Deadline()
	w := &healthWrite{
		sender: &sender{Store: s, patience: time.Until(deadline) / tries},
		update: update, writeID: uuid.New(), now: s.o.Now(),
	}
	result, err := w.land(ctx)
	if err != nil {
		return storage.HealthResult{}, fmt.Errorf("set the health of %s: %w", key, err)
	}
	return result, nil
}

type healthWrite struct {
	*sender
	update  storage.HealthUpdate
	writeID uuid.UUID
	now     time.Time
}

// healthFound is the object and the health that an update read.
type healthFound struct {
	object, report *mvccpb.KeyValue // nil if absent
	format         Format
	revision       int64
}

// land tries until the outcome of the update is known. If an answer is lost, the write
// id shows whether the update landed. Two transactions of one update cannot both land:
// each is conditional on the health that it read.
func (w *healthWrite) land(ctx context.Context) (result storage.HealthResult, err error) {
	err = w.insist(ctx, func() (done bool, err error) {
		result, done, err = w.attempt(ctx)
		return done, err
	})
	if err != nil {
		return storage.HealthResult{}, err
	}
	return result, nil
}

// attempt reads, decides and writes once. If done is false, the caller tries again.
func (w *healthWrite) attempt(ctx context.Context) (result storage.HealthResult, done bool, err error) {
	found, err := w.find(ctx)
	if err != nil {
		return result, false, err
	}
	write, result, err := w.decide(found)
	switch {
	case errors.Is(err, storage.ErrConflict) && w.doubt != nil:
		return result, true, w.unknownOutcome(err) // its own earlier write may be in the way
	case err != nil || write == nil:
		return result, true, err
	}
	answer, err := w.send(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(ConfigKey(w.update.Key)), "=", found.object.ModRevision),
		clientv3.Compare(clientv3.ModRevision(w.key()), "=", found.report.GetModRevision()),
		found.format.unchanged(),
	}, []clientv3.Op{*write}, nil)
	if err != nil {
		if err = w.writeError(err); errors.Is(err, storage.ErrOutcomeUnknown) {
			w.doubt = err
		}
		return result, w.doubt == nil, err
	}
	if answer.Succeeded {
		result.Revision = version(answer.Header.Revision)
		result.Report.Revision = answer.Header.Revision
	}
	return result, answer.Succeeded, nil
}

func (w *healthWrite) key() string { return HealthKey(w.update.Key.Namespace, w.update.Key.Name) }

// find reads the object and its health at one revision.
func (w *healthWrite) find(ctx context.Context) (*healthFound, error) {
	answer, err := w.send(ctx, nil, []clientv3.Op{
		clientv3.OpGet(ConfigKey(w.update.Key)), clientv3.OpGet(w.key()), clientv3.OpGet(FormatKey),
	}, nil)
	if err != nil {
		return nil, w.readError(err)
	}
	return &healthFound{object: pairOf(answer, 0), report: pairOf(answer, 1), format: formatOf(answer, 2), revision: answer.Header.Revision}, nil
}

// decide returns the write, nil for none, and the result if it lands.
func (w *healthWrite) decide(found *healthFound) (*clientv3.Op, storage.HealthResult, error) {
	uid, err := w.permitted(found)
	if err != nil {
		return nil, storage.HealthResult{}, err
	}
	known := decodeHealth(found.report, uid)
	there := storage.HealthResult{Revision: version(found.object.ModRevision)}
	if known.Uid != "" {
		there.Revision, there.Report = version(found.report.ModRevision), reportOf(known, found.report.ModRevision)
	}
	if w.update.Report.Unknown && (known.Uid == "" || known.Unknown) {
		return nil, there, nil
	}
	next := nextHealth(w.update.Key, uid, known, w.update.Report, w.now)
	there.Stale = next == nil
	if there.Stale || proto.Equal(next, known) {
		return nil, there, nil
	}
	next.WriteId = w.writeID[:]
	value, err := envelope.Encode(next)
	if err != nil {
		return nil, storage.HealthResult{}, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	op := clientv3.OpPut(w.key(), string(value), clientv3.WithLease(clientv3.LeaseID(found.object.Lease)))
	return &op, storage.HealthResult{Report: reportOf(next, 0)}, nil
}

// decodeHealth returns an empty Health if the value is of another object or cannot be
// decoded.
func decodeHealth(kv *mvccpb.KeyValue, uid string) *envelope.Health {
	out := &envelope.Health{}
	if kv == nil || open(kv, out) != nil || out.Uid != uid {
		return &envelope.Health{}
	}
	return out
}

// permitted checks the conditions of the update and returns the uid of the object.
func (w *healthWrite) permitted(found *healthFound) (uid string, err error) {
	if err := found.format.Writable(); err != nil {
		return "", err
	}
	if found.object == nil {
		return "", storage.ErrNotFound
	}
	wrapper, err := openObject(found.object, w.update.Key)
	if err != nil {
		return "", err
	}
	if w.update.UID != "" && w.update.UID != wrapper.Uid {
		return "", fmt.Errorf("%w: uid is %s, and the request expects %s: the object was deleted and made anew", storage.ErrConflict, wrapper.Uid, w.update.UID)
	}
	stands := found.object.ModRevision
	if decodeHealth(found.report, wrapper.Uid).Uid != "" {
		stands = max(stands, found.report.ModRevision)
	}
	if changedSince(w.update.ResourceVersion, stands, found.revision) && !w.wrote(found.report) {
		return "", &storage.ConflictError{Key: w.update.Key, Expected: w.update.ResourceVersion, Actual: version(stands)}
	}
	return wrapper.Uid, nil
}

// changedSince says whether what stands at a revision changed after the version that an update
// names, empty for none. Servers' reports give an object versions that nothing here has, so any
// revision between the two, and now, will do.
func changedSince(named string, stands, now int64) bool {
	if named == "" {
		return false
	}
	seen, err := strconv.ParseInt(named, 10, 64)
	return err != nil || seen < stands || seen > now
}

func (w *healthWrite) wrote(kv *mvccpb.KeyValue) bool {
	held := &envelope.Health{}
	return kv != nil && open(kv, held) == nil && bytes.Equal(held.WriteId, w.writeID[:])
}

// nextHealth applies a report to the known health of an object; nil if that is newer.
func nextHealth(key config.Key, uid string, known *envelope.Health, report *health.Report, now time.Time) *envelope.Health {
	probed := report.Probed.UnixNano()
	switch {
	case report.Probed.IsZero() || report.Probed.After(now):
		probed = max(now.UnixNano(), known.Probed)
	case report.Probed.Nanosecond() == 0 && report.Probed.Equal(time.Unix(0, known.Probed).Truncate(time.Second)):
		probed = known.Probed
	case probed < known.Probed:
		return nil
	}
	out := proto.CloneOf(known)
	switch {
	case known.Uid != "" && known.Healthy == report.Healthy && known.Unknown == report.Unknown:
	case report.Since.IsZero() || report.Since.UnixNano() > probed:
		out.Since = probed
	default:
		out.Since = report.Since.UnixNano()
	}
	out.Namespace, out.Name, out.Uid = key.Namespace, key.Name, uid
	out.Healthy, out.Unknown, out.Probed = report.Healthy && !report.Unknown, report.Unknown, probed
	out.Reason, out.Message = report.Reason, report.Message
	return out
}
