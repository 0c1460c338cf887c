package rest

import (
	"encoding/json"
	"errors"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/fieldmanager"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// managed returns an operation that keeps the managed fields of its object true. An apply is one of
// server-side if the batch says so, or somebody has applied the object so before: then it takes no
// field away that another manager has set. It returns false if the operation has a fault.
func (b *batchCall) managed(i int, op storage.Op, text json.RawMessage) (storage.Op, bool) {
	sent := op.Config.ManagedFields
	op.Config.ManagedFields = nil
	op.Managed = b.server.managing(b.call, sent)
	if op.Verb != storage.Put {
		return op, true
	}
	live := b.server.cache.Snapshot().Stored(op.Config.Key())
	if !b.serverSide && (live == nil || len(live.ManagedFields) == 0) {
		op.Managed = unmanaged
		return op, true
	}
	merged, err := b.merge(live, op.Config, text, b.force)
	if conflict := (*apierrors.StatusError)(nil); errors.As(err, &conflict) {
		b.taken = multierror.Append(b.taken, &storage.OpError{Index: i, Err: conflict})
		merged, err = b.merge(live, op.Config, text, true) // its other faults are told too
	}
	if err != nil {
		b.faults.mayNotBe(objectField(i, ""), err.Error())
		return op, false
	}
	if merged.ResourceVersion = op.Config.ResourceVersion; merged.ResourceVersion == "" {
		merged.ResourceVersion, op.Served = batch.Absent, false
		if live != nil {
			merged.ResourceVersion = live.ResourceVersion
		}
	}
	op.Config, op.Managed = merged, nil
	return op, true
}

// merge applies an object over the stored one; live is nil for none.
func (b *batchCall) merge(live, object *config.Config, text json.RawMessage, force bool) (*config.Config, error) {
	s := b.server
	var written metav1.TypeMeta
	if err := json.Unmarshal(text, &written); err != nil {
		return nil, err
	}
	version := written.GroupVersionKind().Version
	before, err := b.stored(live, version)
	if err != nil {
		return nil, err
	}
	wanted := *object
	wanted.ResourceVersion = ""
	applied, err := unstructuredOf(&wanted, version)
	if err != nil {
		return nil, err
	}
	out, err := s.managers.Apply(before, applied, b.call.manager(), force)
	if err != nil {
		return nil, refusal.As(err, refusal.Invalid)
	}
	merged, err := out.MarshalJSON()
	if err != nil {
		return nil, err
	}
	result, err := s.decode(merged, false)
	if err != nil {
		return nil, err
	}
	result.UID = ""
	return result, nil
}

// stored returns the stored object, with its managed fields. What it had before anybody applied it
// server-side counts as applied by batches, unless a batch that applies server-side names its
// manager: that one may have a part of the object only.
func (b *batchCall) stored(live *config.Config, version string) (*unstructured.Unstructured, error) {
	if live == nil {
		return &unstructured.Unstructured{}, nil
	}
	open, err := b.server.unsealed(live)
	if err != nil {
		return nil, err
	}
	out, err := unstructuredOf(open, version)
	if err != nil || b.serverSide && b.call.query.Has("fieldManager") {
		return out, err
	}
	manager := b.call.manager()
	if len(live.ManagedFields) == 0 {
		return b.server.managers.Apply(&unstructured.Unstructured{}, out, manager, true)
	}
	return out, fieldmanager.Adopt(out, manager)
}
