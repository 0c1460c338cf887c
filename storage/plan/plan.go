package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-multierror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Batch is a list of operations, each with the canonical key of its object and with the
// fault that it has whatever is stored.
type Batch struct {
	targets []target
	faults  bool
}

type target struct {
	op    storage.Op
	key   config.Key
	fault error
}

// New makes a batch. It finds the faults that do not depend on stored objects, and Decide
// reports them with the others. The batch refers to the objects in ops: it does not copy
// them.
func New(schemas schema.Set, ops []storage.Op) *Batch {
	b := &Batch{targets: make([]target, len(ops))}
	cores.Each(len(ops), func(i int) { b.targets[i] = newTarget(schemas, ops[i]) })
	first := make(map[config.Key]int, len(ops))
	for i, op := range ops {
		t := b.targets[i]
		if earlier, taken := first[t.key]; taken && t.fault == nil {
			t.fault = failed(op.Verb, t.key, fmt.Errorf(
				"%w: operations %d and %d of the batch are about the same object", storage.ErrInvalid, earlier+1, i+1))
		} else if t.fault == nil {
			first[t.key] = i
		}
		b.faults = b.faults || t.fault != nil
		b.targets[i] = t
	}
	return b
}

func newTarget(schemas schema.Set, op storage.Op) target {
	if op.Config == nil && op.Verb != storage.Delete {
		return target{op: op, fault: fmt.Errorf("%s: %w: the object is missing", op.Verb, storage.ErrInvalid)}
	}
	named := op.Target()
	key, err := Key(schemas, named.Kind, named.Name, named.Namespace)
	if err == nil {
		err = check(schemas, op)
	}
	if err != nil {
		return target{op: op, key: named, fault: failed(op.Verb, named, err)}
	}
	return target{op: op, key: key}
}

// check finds the faults of an operation that do not depend on stored objects.
func check(schemas schema.Set, op storage.Op) error {
	if op.Lease != 0 && (op.Verb == storage.Delete || !MayLease(op.Config.GroupVersionKind)) {
		return fmt.Errorf("%w: only a WorkloadEntry that is written can be under a lease", storage.ErrInvalid)
	}
	if op.Health != nil && (op.Verb != storage.Restore || op.Lease != 0 || !hasHealth(op.Config.GroupVersionKind)) {
		return fmt.Errorf("%w: only a WorkloadEntry that is restored, without a lease, comes with its health", storage.ErrInvalid)
	}
	switch op.Verb {
	case storage.Delete:
		return nil
	case storage.Create:
		if op.Config.ResourceVersion != "" {
			return fmt.Errorf("%w: an object to be created has a resource version (%s): leave it out", storage.ErrInvalid, op.Config.ResourceVersion)
		}
	case storage.Update, storage.Put, storage.Restore:
	default:
		return fmt.Errorf("%w: there is no such operation", storage.ErrInvalid)
	}
	if err := schemas.Kind(op.Config.GroupVersionKind).Codec.Check(op.Config.Spec); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	if err := checkText("labels", op.Config.Labels); err != nil {
		return err
	}
	if err := checkText("annotations", op.Config.Annotations); err != nil {
		return err
	}
	for i, owner := range op.Config.OwnerReferences {
		text := map[string]string{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID)}
		if err := checkText(fmt.Sprintf("ownerReferences[%d]", i), text); err != nil {
			return err
		}
	}
	return nil
}

// MayLease says whether objects of a kind can be under a lease.
func MayLease(kind config.GroupVersionKind) bool { return hasHealth(kind) }

// hasHealth says whether objects of a kind have health.
func hasHealth(kind config.GroupVersionKind) bool {
	return kind.Group == schema.WorkloadEntry.Group && kind.Kind == schema.WorkloadEntry.Kind
}

// checkText refuses text that is not UTF-8: protobuf and JSON cannot hold it.
func checkText(field string, m map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !utf8.ValidString(k) || !utf8.ValidString(m[k]) {
			return fmt.Errorf("%w: %s: %q: %q is not text", storage.ErrInvalid, field, k, m[k])
		}
	}
	return nil
}

// failed adds the operation and the object to an error. A conflict names its object itself.
func failed(verb storage.Verb, key config.Key, err error) error {
	if conflict := (*storage.ConflictError)(nil); errors.As(err, &conflict) {
		return err
	}
	return fmt.Errorf("%s %s: %w", verb, key, err)
}

// Keys returns the canonical keys of the operations in which New found no fault, each once,
// in the order of the operations.
func (b *Batch) Keys() []config.Key {
	keys := make([]config.Key, 0, len(b.targets))
	for _, t := range b.targets {
		if t.fault == nil {
			keys = append(keys, t.key)
		}
	}
	return keys
}

// OnlyCreates says that every operation is a Create without a fault. A store may then
// assume that none of the objects exists, and check that as it commits.
func (b *Batch) OnlyCreates() bool {
	for _, t := range b.targets {
		if t.op.Verb != storage.Create {
			return false
		}
	}
	return !b.faults && len(b.targets) > 0
}

// Stamp is the metadata that a store adds to objects.
type Stamp struct {
	// Now is the creation time of new objects, without its fraction of a second. An object
	// that is restored with a creation time keeps that.
	Now time.Time
	// NewUID returns the UID of a new object.
	NewUID func() string
	// Domain is the domain of the store.
	Domain string
}

// Step is the decided change of one operation. Before is the stored object, nil for none.
// After is the object to store: nil to delete it, Before itself if nothing changes, else a
// new Config without a resource version. That Config shares its maps with the operation,
// and its spec with the operation or Before. Its spec is encoded (encoded.go) if that of
// Before is. Lease is the lease that the object comes under; 0 leaves it as it is. Health is the
// report that a new object comes with, nil for none.
type Step struct {
	Key           config.Key
	Outcome       storage.Outcome
	Before, After *config.Config
	Lease         storage.LeaseID
	Health        *health.Report
}

// Decide returns the Step of each operation, given the objects that are stored under Keys.
// The error is a *multierror.Error of one *storage.OpError for each operation that is at
// fault; then there are no steps.
//
// A stored object without a spec stands for one that could not be read. It can be deleted,
// or replaced by an object with a new UID.
func (b *Batch) Decide(stored map[config.Key]*config.Config, stamp Stamp) ([]Step, error) {
	stamp.Now = stamp.Now.UTC().Truncate(time.Second)
	steps := make([]Step, len(b.targets))
	var faults *multierror.Error
	for i, t := range b.targets {
		err := t.fault
		if err == nil {
			steps[i], err = t.decide(stored[t.key], stamp)
		}
		if err != nil {
			faults = multierror.Append(faults, &storage.OpError{Index: i, Err: err})
		}
	}
	if faults != nil {
		return nil, faults
	}
	return steps, nil
}

func (t target) decide(before *config.Config, stamp Stamp) (Step, error) {
	if err := t.permit(before); err != nil {
		return Step{}, failed(t.op.Verb, t.key, err)
	}
	step := Step{Key: t.key, Before: before, Lease: t.op.Lease}
	if err := t.op.KeepSpec; err != nil && !t.keepsSpec(before) {
		return Step{}, failed(t.op.Verb, t.key, err)
	}
	switch {
	case t.op.Verb == storage.Delete:
		step.Outcome = storage.Deleted
	case before == nil:
		step.Outcome, step.After, step.Health = storage.Created, t.newObject(stamp), t.op.Health
	case before.Spec == nil:
		step.Outcome, step.After, step.Health = storage.Configured, t.newObject(stamp), t.op.Health
	default:
		managed, err := t.managed(before)
		if err != nil {
			return Step{}, failed(t.op.Verb, t.key, err)
		}
		step.Outcome, step.After = t.changed(before, managed, stamp)
	}
	return step, nil
}

// keepsSpec says whether the operation leaves the spec of the stored object as it is.
func (t target) keepsSpec(before *config.Config) bool {
	if t.op.Verb == storage.Delete {
		return true
	}
	if before == nil || before.Spec == nil {
		return false
	}
	_, respecified := spec(before.Spec, t.op.Config.Spec)
	return !respecified
}

// permit returns an error if the stored object, nil for none, does not allow the operation.
func (t target) permit(before *config.Config) error {
	condition := t.op.Condition()
	switch {
	case before != nil && t.op.Verb == storage.Create:
		return storage.ErrExists
	case before == nil && (t.op.Verb == storage.Update || t.op.Verb == storage.Delete):
		return storage.ErrNotFound
	case condition == "" || before == nil && condition == storage.Absent:
		return nil
	case before == nil:
		return &storage.ConflictError{Key: t.key, Expected: condition}
	case before.ResourceVersion != condition:
		return &storage.ConflictError{Key: t.key, Expected: condition, Actual: before.ResourceVersion}
	}
	return nil
}

func (t target) newObject(stamp Stamp) *config.Config {
	out := t.stamped(Created(t.op, stamp.Now), stamp.NewUID(), stamp.Domain)
	out.ManagedFields = t.op.Config.ManagedFields
	out.SetWritten(t.op.Config.AsWritten())
	return out
}

// managed returns the managed fields of an object after the operation.
func (t target) managed(before *config.Config) ([]metav1.ManagedFieldsEntry, error) {
	switch {
	case t.op.Managed != nil && len(before.ManagedFields) > 0:
		return t.op.Managed(before, t.op.Config)
	case t.op.Config.ManagedFields != nil:
		return t.op.Config.ManagedFields, nil
	}
	return before.ManagedFields, nil
}

// Created returns the creation time of the object that an operation creates now. A restored
// object keeps its own, unless that is in the future.
func Created(op storage.Op, now time.Time) time.Time {
	now = now.UTC().Truncate(time.Second)
	if then := op.Config.CreationTimestamp; op.Verb == storage.Restore && !then.IsZero() && then.Before(now) {
		return then.UTC().Truncate(time.Second)
	}
	return now
}

// stamped returns an object with the content of the operation and the metadata of the
// store.
func (t target) stamped(created time.Time, uid, domain string) *config.Config {
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind:  t.key.Kind,
			Name:              t.key.Name,
			Namespace:         t.key.Namespace,
			Domain:            domain,
			Labels:            t.op.Config.Labels,
			Annotations:       t.op.Config.Annotations,
			OwnerReferences:   t.op.Config.OwnerReferences,
			CreationTimestamp: created,
			Generation:        1,
			UID:               uid,
		},
		Spec: t.op.Config.Spec,
	}
}

// changed returns the outcome for an object that exists, and the object to store: before
// itself if it has the content of the operation already, and the operation has no lease.
func (t target) changed(before *config.Config, managed []metav1.ManagedFieldsEntry, stamp Stamp) (storage.Outcome, *config.Config) {
	merged, respecified := spec(before.Spec, t.op.Config.Spec)
	text := t.op.Config.AsWritten()
	if unknownKept(merged, t.op.Config.Spec) {
		text = "" // it lacks what a newer binary stored
	}
	if !respecified && t.op.Lease == 0 && text == before.AsWritten() && config.SameMeta(before, t.op.Config) && config.SameManagedFields(before.ManagedFields, managed) {
		return storage.Unchanged, before
	}
	after := t.stamped(before.CreationTimestamp, before.UID, stamp.Domain)
	after.Spec, after.Generation, after.ManagedFields = merged, before.Generation, managed
	after.SetWritten(text)
	if config.SameManagedFields(before.ManagedFields, managed) {
		after.ManagedFields = before.ManagedFields
	}
	if respecified {
		after.Generation++
	}
	return storage.Configured, after
}

// Changes says whether any step changes anything.
func Changes(steps []Step) bool {
	for _, s := range steps {
		if s.Outcome != storage.Unchanged {
			return true
		}
	}
	return false
}

// Results returns the results of steps that a store committed as revision.
func Results(steps []Step, revision string) []storage.Result {
	results := make([]storage.Result, len(steps))
	for i, s := range steps {
		results[i] = storage.Result{Key: s.Key, Outcome: s.Outcome, ResourceVersion: revision}
		if s.Outcome == storage.Unchanged {
			results[i].ResourceVersion = s.Before.ResourceVersion
		}
	}
	return results
}

// ApplyOne applies a single operation as a batch. It returns the resource version that the batch
// reports, and the error of the operation itself.
func ApplyOne(op storage.Op, apply func([]storage.Op) (string, []storage.Result, error)) (string, error) {
	_, results, err := apply([]storage.Op{op})
	if fault := (*storage.OpError)(nil); errors.As(err, &fault) {
		return "", fault.Err
	}
	if err != nil {
		return "", err
	}
	return results[0].ResourceVersion, nil
}
