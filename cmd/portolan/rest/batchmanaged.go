package rest

import (
	"encoding/json"
	"errors"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/fieldmanager"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// managed returns an operation that keeps the managed fields of its object true. An apply of an
// object that somebody has applied server-side is such an apply itself, so that it takes no
// field away that another manager has set. It returns false if the operation has a fault.
func (b *batchCall) managed(i int, op storage.Op, text json.RawMessage) (storage.Op, bool) {
	sent := op.Config.ManagedFields
	op.Config.ManagedFields = nil
	op.Managed = b.server.managing(b.call, sent)
	if op.Verb != storage.Put {
		return op, true
	}
	live := b.server.cache.Snapshot().Stored(op.Config.Key())
	if live == nil || len(live.ManagedFields) == 0 {
		op.Managed = unmanaged
		return op, true
	}
	merged, err := b.merge(live, op.Config, text)
	if conflict := (*apierrors.StatusError)(nil); errors.As(err, &conflict) {
		b.taken = multierror.Append(b.taken, &storage.OpError{Index: i, Err: conflict})
		return op, true // its other faults are told too
	}
	if err != nil {
		b.faults.mayNotBe(objectField(i, ""), err.Error())
		return op, false
	}
	if merged.ResourceVersion = op.Config.ResourceVersion; merged.ResourceVersion == "" {
		merged.ResourceVersion, op.Served = live.ResourceVersion, false
	}
	op.Config, op.Managed = merged, nil
	return op, true
}

// merge applies an object over the stored one. What that had before anybody applied it
// server-side counts as applied by batches.
func (b *batchCall) merge(live, object *config.Config, text json.RawMessage) (*config.Config, error) {
	s := b.server
	var written metav1.TypeMeta
	if err := json.Unmarshal(text, &written); err != nil {
		return nil, err
	}
	version := written.GroupVersionKind().Version
	open, err := s.unsealed(live)
	if err != nil {
		return nil, err
	}
	before, err := unstructuredOf(open, version)
	if err != nil {
		return nil, err
	}
	manager := b.call.manager()
	if err := fieldmanager.Adopt(before, manager); err != nil {
		return nil, err
	}
	wanted := *object
	wanted.ResourceVersion = ""
	applied, err := unstructuredOf(&wanted, version)
	if err != nil {
		return nil, err
	}
	out, err := s.managers.Apply(before, applied, manager, b.force)
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
