package rest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Dry runs. A write with dryRun=All is validated, authorized and decided as any
// other, and answered as it would be, but nothing is written. It is decided by
// the newest snapshot, which resourceVersion and consistent make as new as they
// make those of reads; the revision of the answer is that of the snapshot. The
// limits of the store are its own and not looked at.

// dryRun reads the values of dryRun.
func dryRun(values []string) (bool, error) {
	for _, value := range values {
		if value != metav1.DryRunAll {
			return false, badRequest(fmt.Sprintf("dryRun %q: use All, or leave it out", value))
		}
	}
	return len(values) > 0, nil
}

// rehearsal stands in for the store in a dry run: it decides as a store does,
// and keeps nothing.
type rehearsal struct {
	snapshot *cache.Snapshot
	schemas  schema.Set
	steps    []plan.Step // what the operations came to
}

// rehearse returns a rehearsal, nil where the request is meant to be done.
func (s *Server) rehearse(c *call, values []string) (*rehearsal, error) {
	dry, err := dryRun(values)
	if err != nil || !dry {
		return nil, err
	}
	revision, err := s.least(c)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.atLeast(c.r.Context(), revision)
	if err != nil {
		return nil, err
	}
	return &rehearsal{snapshot: snapshot, schemas: s.schemas}, nil
}

// apply has the shape of storage.Batcher's Apply.
func (r *rehearsal) apply(_ context.Context, ops []storage.Op) (string, []storage.Result, error) {
	b := plan.New(r.schemas, ops)
	stored := map[config.Key]*config.Config{}
	for _, key := range b.Keys() {
		if object := keptWith(r.snapshot, r.snapshot.Get(key)); object != nil {
			stored[key] = object
		}
	}
	steps, err := b.Decide(stored, plan.Stamp{Now: time.Now(), NewUID: uuid.NewString})
	if err != nil {
		return "", nil, err
	}
	r.steps = steps
	return r.revision(), plan.Results(steps, r.revision()), nil
}

func (r *rehearsal) revision() string { return strconv.FormatInt(r.snapshot.Revision(), 10) }

// object is the object of a single operation as it would be. A new one has no
// version yet, and one that would change keeps its own, so that it may be sent
// again without dryRun.
func (r *rehearsal) object() *config.Config {
	step := r.steps[0]
	after := *step.After
	if step.Before != nil {
		before := served(r.snapshot, step.Before)
		after.ResourceVersion, after.Status = before.ResourceVersion, before.Status
	}
	return &after
}
