package etcd

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-multierror"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// mutation is the transaction of one batch. It may be sent many times, and lands at most
// once: it requires that its own history record, whose key is its write id, is absent.
type mutation struct {
	writeID uuid.UUID
	// keys are the targets. The transaction requires that they are still as found.
	keys  []config.Key
	found *targets
	// allotted is the part that changes addresses.
	allotted allotment

	// compares and writes are the transaction.
	compares []clientv3.Cmp
	writes   []clientv3.Op
	// reads tell its outcome: they read the targets, the format and the record.
	reads []clientv3.Op

	size   int // bytes of the request
	faults *multierror.Error
}

func recordKey(writeID uuid.UUID) string { return HistoryPrefix + writeID.String() }

// newMutation refuses objects that are too large, and names the position of each.
func (s *Store) newMutation(steps []plan.Step, found *targets, allotted allotment, record *envelope.Record) (*mutation, error) {
	m := &mutation{
		writeID:  uuid.New(),
		keys:     make([]config.Key, len(steps)),
		found:    found,
		allotted: allotted,
		compares: make([]clientv3.Cmp, 0, len(steps)+2),
		writes:   make([]clientv3.Op, 0, len(steps)+2),
		size:     requestOverhead,
	}
	if err := m.keepFormat(found.format, formatFor(steps)); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	values := make([]stepValue, len(steps))
	cores.Each(len(steps), func(i int) { values[i] = s.encodeStep(m, steps[i]) })
	for i, step := range steps {
		m.keys[i] = step.Key
		m.require(ConfigKey(step.Key), found.revisionOf(step.Key))
		m.addStep(i, step, values[i])
	}
	if m.faults != nil {
		return nil, m.faults
	}
	m.requireHealth()
	for _, key := range allotted.keys {
		m.require(key, found.addresses[key].GetModRevision())
	}
	for _, w := range allotted.writes {
		m.write(w)
	}
	value, err := encodeRecord(record)
	if err != nil {
		return nil, fmt.Errorf("apply: %w: the record of history: %w", storage.ErrInvalid, err)
	}
	key := recordKey(m.writeID)
	m.compares = append(m.compares, absent(key))
	m.reads = append(append(gets(m.keys), clientv3.OpGet(key)), getAll(allotted.keys)...)
	m.reads = append(m.reads, getHealth(found.watched)...)
	m.size += 2*len(key) + operationOverhead
	m.put(key, value)
	return m, s.checkTotal(len(steps), m.size)
}

// formatFor returns the format that the writes of steps need.
func formatFor(steps []plan.Step) int64 {
	if slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Lease != 0 }) {
		return leaseFormat
	}
	return objectFormat
}

// keepFormat makes the transaction conditional on the format, and raises the format to what it
// needs.
func (m *mutation) keepFormat(format Format, needed int64) error {
	if err := format.Writable(); err != nil {
		return err
	}
	raised, err := format.raisedValue(needed)
	if err != nil {
		return fmt.Errorf("%w: the storage format: %w", storage.ErrInvalid, err)
	}
	m.compares = append(m.compares, format.unchanged())
	if raised != nil {
		m.writes = append(m.writes, clientv3.OpPut(FormatKey, string(raised)))
	}
	return nil
}

// stepValue is the value that a step puts, and that of its health, or why it cannot.
type stepValue struct {
	value, health []byte
	err           error
}

// encodeStep returns the value of a step, nothing for a step without one.
func (s *Store) encodeStep(m *mutation, step plan.Step) (out stepValue) {
	if step.Outcome == storage.Unchanged || step.Outcome == storage.Deleted {
		return out
	}
	wrapper := m.found.wrappers[step.Key]
	if wrapper == nil {
		wrapper = &envelope.Envelope{}
	}
	out.value, out.err = encode(step.After, m.writeID[:], wrapper)
	if out.err == nil { // as every reader will
		kv := &mvccpb.KeyValue{Key: []byte(ConfigKey(step.Key)), Value: out.value}
		_, _, out.err = decode(kv, step.Key, s.Schemas().Kind(step.Key.Kind), s.o.Domain)
	}
	if out.err == nil && step.Health != nil {
		next := nextHealth(step.Key, step.After.UID, &envelope.Health{}, step.Health, s.o.Now())
		next.WriteId = m.writeID[:]
		out.health, out.err = envelope.Encode(next)
	}
	if out.err != nil {
		out.err = fmt.Errorf("%w: %w", storage.ErrInvalid, out.err)
	} else {
		out.err = s.checkSize(step.Key, len(out.value))
	}
	return out
}

func (m *mutation) addStep(i int, step plan.Step, v stepValue) {
	key := ConfigKey(step.Key)
	switch step.Outcome {
	case storage.Unchanged:
		return
	case storage.Deleted:
		m.remove(key)
		if hasHealth(step.Key.Kind) {
			m.remove(HealthKey(step.Key.Namespace, step.Key.Name))
		}
		return
	}
	if v.err != nil {
		m.faults = multierror.Append(m.faults, &storage.OpError{Index: i, Err: v.err})
		return
	}
	m.putObject(key, v.value, step)
	if v.health != nil {
		m.put(HealthKey(step.Key.Namespace, step.Key.Name), v.health)
	}
}

// putObject puts an object under its lease, if the step has one, or takes it from it. An object
// that exists stays under the lease that it is under: the condition on its revision says that it
// is there.
func (m *mutation) putObject(key string, value []byte, step plan.Step) {
	switch {
	case step.Lease == storage.OffLease:
		m.put(key, value)
		m.writes = append(m.writes, offLease(step.Key))
		m.size += 2*len(key) + 2*operationOverhead
	case step.Lease != 0:
		m.put(key, value, clientv3.WithLease(clientv3.LeaseID(step.Lease)))
		m.writes = append(m.writes, underLease(step.Key, step.Lease)...)
		m.size += len(LeaseKey(step.Key)) + 2*len(key) + 3*operationOverhead
	case plan.MayLease(step.Key.Kind) && m.found.revisionOf(step.Key) != 0:
		m.put(key, value, clientv3.WithIgnoreLease())
	default:
		m.put(key, value)
	}
}

// require makes the transaction conditional on the mod revision of a key. newMutation adds
// the reads for a condition that fails.
func (m *mutation) require(key string, revision int64) {
	m.compares = append(m.compares, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
	m.size += 2*len(key) + operationOverhead
}

func (m *mutation) remove(key string) {
	m.writes = append(m.writes, clientv3.OpDelete(key))
	m.size += len(key) + operationOverhead
}

// write adds a put, or, for a nil value, the deletion of the key.
func (m *mutation) write(w keyWrite) {
	if w.value == nil {
		m.remove(w.key)
		return
	}
	m.put(w.key, w.value)
}

func (m *mutation) put(key string, value []byte, options ...clientv3.OpOption) {
	m.writes = append(m.writes, clientv3.OpPut(key, string(value), options...))
	m.size += len(key) + len(value) + operationOverhead
}

// remember stores in recent the values that the mutation put. h is the header of the
// answer by which it landed.
func (m *mutation) remember(in *recent, h *etcdserverpb.ResponseHeader) {
	for _, op := range m.writes {
		if op.IsPut() && bytes.HasPrefix(op.KeyBytes(), []byte(ConfigPrefix)) {
			kv := &mvccpb.KeyValue{Key: op.KeyBytes(), Value: op.ValueBytes(), ModRevision: h.Revision}
			in.remember(remembered{kv: kv, own: true}, h)
		}
	}
}

// absent is the condition that a key does not exist.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// landed returns the revision at which the mutation landed, 0 if it did not. Its record
// shows it, and so does any target with its write id.
func (m *mutation) landed(now *targets) int64 {
	if now.record != nil && !isVoid(now.record) {
		return now.record.CreateRevision
	}
	for _, key := range m.keys {
		if string(now.wrappers[key].GetWriteId()) == string(m.writeID[:]) {
			return now.revisionOf(key)
		}
	}
	return 0
}

// mayLand says whether a transaction that was sent and has not landed still can. atOnce:
// all targets are as required. oneDay: it may land later, as only keys that must be
// absent are in the way, and these may be deleted again. The format is never deleted.
func (m *mutation) mayLand(now *targets) (atOnce, oneDay bool) {
	if now.format.Revision != m.found.format.Revision {
		return false, false
	}
	atOnce, oneDay = true, true
	for _, key := range m.keys {
		if want := m.found.revisionOf(key); now.revisionOf(key) != want {
			atOnce = false
			oneDay = oneDay && want == 0
		}
	}
	for _, key := range m.found.watched {
		if want := m.found.healthRevision(key); now.healthRevision(key) != want {
			atOnce = false
			oneDay = oneDay && want == 0
		}
	}
	for _, key := range m.allotted.keys {
		if want := m.found.addresses[key].GetModRevision(); now.addresses[key].GetModRevision() != want {
			atOnce = false
			oneDay = oneDay && want == 0
		}
	}
	return atOnce, oneDay
}

// voidRecord returns the value of a record that prevents a mutation.
func voidRecord(now time.Time) ([]byte, error) {
	return encodeRecord(&envelope.Record{Time: now.UnixMilli(), Void: true})
}
