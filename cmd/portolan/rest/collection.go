package rest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hashicorp/go-multierror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// deletedAtOnce bounds the objects that one change of the store deletes. Where the store takes
// fewer, it is halved.
const deletedAtOnce = 500

// removeSelected deletes the objects of a list, and answers with them as they were.
func (s *Server) removeSelected(c *call) error {
	selector, err := c.selector()
	if err != nil {
		return err
	}
	given, dry, err := s.readDeleteOptions(c)
	if err != nil {
		return err
	}
	if given.uid != "" {
		return refusal.BadRequest("preconditions.uid is of one object: delete that by its name")
	}
	trial, err := s.rehearse(c, dry)
	if err != nil {
		return err
	}
	gone, at, err := s.removeInParts(c, trial, func(from *cache.Snapshot) []*config.Config { return s.selected(c, from, selector, given) })
	switch {
	case err != nil && len(gone) > 0:
		return fmt.Errorf("%w (%d objects were deleted before)", err, len(gone))
	case err != nil:
		return err
	}
	return s.answerList(c, metav1.ListMeta{ResourceVersion: at.Version()}, slices.Values(gone), nil)
}

// removeInParts deletes the objects that pick returns of the newest snapshot: several hundred at a
// time in one change of the store, or as many as it takes. An object that is changed meanwhile is
// picked anew. It returns the deleted objects as they were, also beside an error, and the snapshot
// of the last ones.
func (s *Server) removeInParts(c *call, trial *rehearsal, pick func(from *cache.Snapshot) []*config.Config) (gone []*config.Config, last *cache.Snapshot, err error) {
	for attempt, most := 1, deletedAtOnce; ; {
		from := s.cache.Snapshot()
		if trial != nil {
			from, most = trial.snapshot, math.MaxInt
		}
		objects := pick(from)
		part := objects[:min(len(objects), most)]
		err := s.removeAll(c, trial, part)
		switch {
		case err == nil:
			for _, object := range part {
				gone = append(gone, withStatus(from, object))
			}
			if len(part) == len(objects) {
				return gone, from, nil
			}
		case errors.Is(err, storage.ErrTooLarge) && most > 1:
			most /= 2
		case !meanwhile(err) || attempt == attempts || !s.catchUp(c, from):
			return gone, from, err
		default:
			attempt++
		}
	}
}

// selected returns the objects of the store that a call names, as the store compares them.
func (s *Server) selected(c *call, snapshot *cache.Snapshot, selector selector, given precondition) (out []*config.Config) {
	for object := range storedAmong(snapshot, snapshot.List(c.schema.GroupVersionKind, c.namespace)) {
		if object = withComparedStatus(snapshot, object); selector.matches(object) && (given.resourceVersion == "" || given.resourceVersion == object.ResourceVersion) {
			out = append(out, object)
		}
	}
	return out
}

// removeAll deletes objects, each in the version that it has.
func (s *Server) removeAll(c *call, trial *rehearsal, objects []*config.Config) error {
	if len(objects) == 0 {
		return nil
	}
	ops, found := make([]storage.Op, len(objects)), (*multierror.Error)(nil)
	for i, object := range objects {
		ops[i] = storage.Op{Verb: storage.Delete, Key: object.Key(), ResourceVersion: object.ResourceVersion, Served: true}
		if err := s.mayStore(c, ops[i]); err != nil {
			found = multierror.Append(found, err)
		}
	}
	for _, err := range s.granting(c, ops) {
		if err != nil {
			return refusal.As(err, refusal.Forbidden)
		}
	}
	if err := found.ErrorOrNil(); err != nil {
		return err
	}
	var warnings []string
	for _, advice := range s.advise(c.r.Context(), ops) {
		warnings = append(warnings, allWarnings(nil, advice)...)
	}
	revision, _, err := s.batcher(trial).Apply(c.r.Context(), ops)
	if err != nil {
		return oneOf(err)
	}
	if trial == nil {
		s.await(c.r.Context(), revision)
	}
	slices.Sort(warnings)
	warn(c.w, slices.Compact(warnings))
	return nil
}

// oneOf returns the first error of a batch by itself: it names its object.
func oneOf(err error) error {
	var all *multierror.Error
	if errors.As(err, &all) && len(all.Errors) > 0 {
		return all.Errors[0]
	}
	return err
}
