package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

// Dry runs. The server validates, authorizes, decides and answers a write with
// dryRun=All like any other, but writes nothing. It decides on the newest snapshot; as
// for reads, resourceVersion and consistent require a newer one. The answer has the
// revision of the snapshot. A dry run ignores the limits of the store. With preview, the
// dry run of a batch also says how objects would differ, and what that would change for
// proxies.

func dryRun(values []string) (bool, error) {
	for _, value := range values {
		if value != metav1.DryRunAll {
			return false, refusal.Invalid(fmt.Sprintf("dryRun %q: use All, or leave it out", value))
		}
	}
	return len(values) > 0, nil
}

// rehearsal replaces the store in a dry run: it decides as a store does, and writes
// nothing.
type rehearsal struct {
	server   *Server
	snapshot *cache.Snapshot
	schemas  schema.Set
	steps    []plan.Step // the steps that the operations lead to
}

// rehearse returns a rehearsal, nil if the request is not a dry run.
func (s *Server) rehearse(c *call, values []string) (*rehearsal, error) {
	dry, err := dryRun(values)
	if err != nil || !dry {
		return nil, err
	}
	revision, err := s.minRevision(c)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.atLeast(c.r.Context(), revision)
	if err != nil {
		return nil, err
	}
	return &rehearsal{server: s, snapshot: snapshot, schemas: s.schemas}, nil
}

// Apply implements storage.Batcher.
func (r *rehearsal) Apply(_ context.Context, ops []storage.Op) (string, []storage.Result, error) {
	b := plan.New(r.schemas, ops)
	stored := map[config.Key]*config.Config{}
	for _, key := range b.Keys() {
		if object := ofStore(r.snapshot, key); object != nil {
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

// ofStore returns an object in the form in which the store compares it, nil if the store
// has none.
func ofStore(in *cache.Snapshot, key config.Key) *config.Config {
	return withComparedStatus(in, in.Stored(key))
}

// previewOf reads the value of preview, which only dry runs may have.
func previewOf(query url.Values, trial *rehearsal) (effect.Preview, error) {
	what := effect.Preview(query.Get("preview"))
	switch {
	case !query.Has("preview"):
		return effect.PreviewNothing, nil
	case !slices.Contains(effect.Previews, what):
		return "", refusal.BadRequest(fmt.Sprintf("preview %q: use proxies, resources or bodies, or leave it out", what))
	case trial == nil:
		return "", refusal.BadRequest("preview is of a dry run: add dryRun=All, or leave it out")
	}
	return what, nil
}

// preview adds to the answer of a dry run how the objects would differ, and what proxies
// would get.
func (s *Server) preview(trial *rehearsal, ops []storage.Op, what effect.Preview, answer *batch.Result) (err error) {
	for i, step := range trial.steps {
		if step.Outcome == storage.Unchanged {
			continue
		}
		r := &answer.Results[i]
		if r.Before, err = asWritten(step.Before); err != nil {
			return err
		}
		if r.After, err = asWritten(step.After); err != nil {
			return err
		}
	}
	if s.previewer == nil {
		return nil
	}
	if effect, known := s.previewer.Preview(ops, what); known {
		answer.Effect = &effect
	}
	return nil
}

// asWritten returns the user's part of an object, as JSON; nothing for nil, or for an
// object that cannot be read.
func asWritten(object *config.Config) (json.RawMessage, error) {
	if object == nil || object.Spec == nil {
		return nil, nil
	}
	return document(&config.Config{
		Meta: config.Meta{
			GroupVersionKind: object.GroupVersionKind, Name: object.Name, Namespace: object.Namespace,
			Labels: object.Labels, Annotations: object.Annotations, OwnerReferences: object.OwnerReferences,
		},
		Spec: object.Spec, Written: object.Written,
	}, "")
}

func (r *rehearsal) revision() string { return strconv.FormatInt(r.snapshot.Revision(), 10) }

// object returns the object of a single operation as the write would leave it. A new
// object has no version yet, and a changed one keeps its version, so that a client may
// send it again without dryRun.
func (r *rehearsal) object() *config.Config {
	step := r.steps[0]
	after := *step.After
	if step.Before != nil {
		before := r.server.alone(r.snapshot, step.Before)
		after.ResourceVersion, after.Status = before.ResourceVersion, before.Status
	}
	return &after
}
