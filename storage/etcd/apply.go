package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-multierror"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Apply reads the targets at one revision, decides, and commits in one
// transaction that compares the revision of every target, those that do not
// change included. The answer to a lost race carries what the targets are now,
// so the next attempt needs no read; it fails where an operation was
// conditional. Once its outcome is in doubt a transaction is not repeated:
// storage.ErrOutcomeUnknown.
func (s *Store) Apply(ctx context.Context, ops []storage.Op) (string, []storage.Result, error) {
	if err := s.checkCount(len(ops)); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	batch := plan.New(s.Schemas(), ops)
	found := &targets{}
	if !batch.OnlyCreates() || !s.connected() {
		var err error
		if found, err = s.read(ctx, batch.Keys()); err != nil {
			return "", nil, fmt.Errorf("apply: %w", s.readError(err))
		}
	}
	for attempt := 1; ; attempt++ {
		steps, err := batch.Decide(found.objects, plan.Stamp{Now: s.o.Now(), NewUID: uuid.NewString, Domain: s.o.Domain})
		if err != nil {
			return "", nil, err
		}
		if !plan.Changes(steps) {
			return version(found.revision), plan.Results(steps, version(found.revision)), nil
		}
		revision, lost, err := s.commit(ctx, steps, found)
		if err != nil {
			return "", nil, err
		}
		if lost == nil {
			return version(revision), plan.Results(steps, version(revision)), nil
		}
		found = lost
		if err := backOff(ctx, attempt); err != nil {
			return "", nil, fmt.Errorf("apply: %w: others changed the same objects before each of %d attempts, nothing was written: %w",
				storage.ErrUnavailable, attempt, err)
		}
	}
}

// connected says whether a request would be sent at once. A mutation that waits
// for a connection until its deadline looks like one whose answer was lost; a
// read before it tells them apart.
func (s *Store) connected() bool {
	connection := s.client.ActiveConnection()
	return connection == nil || connection.GetState() == connectivity.Ready
}

// targets are the objects that a batch is about, as of one revision. Keys that
// are absent have no entries; a value that cannot be read has an object without
// a spec and no wrapper.
type targets struct {
	revision  int64
	objects   map[config.Key]*config.Config
	wrappers  map[config.Key]*envelope.Envelope
	revisions map[config.Key]int64
}

// read gets all keys at one revision, by one request.
func (s *Store) read(ctx context.Context, keys []config.Key) (*targets, error) {
	response, err := s.client.Txn(ctx).Then(gets(keys)...).Commit()
	if err != nil {
		return nil, err
	}
	s.saw(response.Header.Revision)
	return s.targets(response), nil
}

func gets(keys []config.Key) []clientv3.Op {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpGet(ConfigKey(key))
	}
	return ops
}

// targets reads the answers to gets.
func (s *Store) targets(response *clientv3.TxnResponse) *targets {
	n := len(response.Responses)
	t := &targets{
		revision:  response.Header.Revision,
		objects:   make(map[config.Key]*config.Config, n),
		wrappers:  make(map[config.Key]*envelope.Envelope, n),
		revisions: make(map[config.Key]int64, n),
	}
	for _, r := range response.Responses {
		for _, kv := range rangeOf(r) {
			s.addTarget(t, kv)
		}
	}
	return t
}

func rangeOf(r *etcdserverpb.ResponseOp) []*mvccpb.KeyValue { return r.GetResponseRange().GetKvs() }

func (s *Store) addTarget(t *targets, kv *mvccpb.KeyValue) {
	key, err := ParseConfigKey(string(kv.Key), s.Schemas())
	if err != nil {
		return // Not a key that was asked for.
	}
	t.revisions[key] = kv.ModRevision
	object, wrapper, err := decode(kv, key, s.Schemas().Kind(key.Kind), s.o.Domain)
	if err != nil {
		t.objects[key] = &config.Config{Meta: config.Meta{
			GroupVersionKind: key.Kind, Name: key.Name, Namespace: key.Namespace, ResourceVersion: version(kv.ModRevision),
		}}
		return
	}
	t.objects[key], t.wrappers[key] = object, wrapper
}

// commit writes steps in one transaction if the targets are as they were found.
// If not, nothing is written and lost is what they are now.
func (s *Store) commit(ctx context.Context, steps []plan.Step, found *targets) (revision int64, lost *targets, err error) {
	compares, writes, err := s.operations(steps, found)
	if err != nil {
		return 0, nil, err
	}
	keys := make([]config.Key, len(steps))
	for i, step := range steps {
		keys[i] = step.Key
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, fmt.Errorf("apply: %w: nothing was sent: %w", storage.ErrUnavailable, err)
	}
	response, err := s.client.Txn(ctx).If(compares...).Then(writes...).Else(gets(keys)...).Commit()
	if err != nil {
		return 0, nil, fmt.Errorf("apply %s: %w", subject(steps), s.writeError(err))
	}
	s.saw(response.Header.Revision)
	if !response.Succeeded {
		return 0, s.targets(response), nil
	}
	return response.Header.Revision, nil, nil
}

// operations makes the compares and the writes of a transaction.
func (s *Store) operations(steps []plan.Step, found *targets) ([]clientv3.Cmp, []clientv3.Op, error) {
	writeID := uuid.New()
	var faults *multierror.Error
	size := requestOverhead
	compares := make([]clientv3.Cmp, 0, len(steps))
	writes := make([]clientv3.Op, 0, len(steps))
	for i, step := range steps {
		key := ConfigKey(step.Key)
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", found.revisions[step.Key]))
		size += 2*len(key) + operationOverhead
		switch step.Outcome {
		case storage.Unchanged:
			continue
		case storage.Deleted:
			writes = append(writes, clientv3.OpDelete(key))
			size += len(key) + operationOverhead
			continue
		}
		wrapper := found.wrappers[step.Key]
		if wrapper == nil {
			wrapper = &envelope.Envelope{}
		}
		value, err := encode(step.After, writeID[:], wrapper)
		if err != nil {
			err = fmt.Errorf("%w: %w", storage.ErrInvalid, err)
		} else {
			err = s.checkSize(step.Key, len(value))
		}
		if err != nil {
			faults = multierror.Append(faults, &storage.OpError{Index: i, Err: err})
			continue
		}
		writes = append(writes, clientv3.OpPut(key, string(value)))
		size += len(key) + len(value) + operationOverhead
	}
	if faults != nil {
		return nil, nil, faults
	}
	return compares, writes, s.checkTotal(len(steps), size)
}

// subject names what a batch is about, in an error.
func subject(steps []plan.Step) string {
	if len(steps) == 1 {
		return steps[0].Key.String()
	}
	return fmt.Sprintf("%d objects, %s first", len(steps), steps[0].Key)
}

// backOff waits, after the first lost race hardly, then longer and longer, with
// jitter so that rivals do not meet again.
func backOff(ctx context.Context, attempt int) error {
	limit := time.Millisecond << min(attempt-1, 7)
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
