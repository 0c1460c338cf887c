package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// deletedAtOnce bounds the objects that one change of the store deletes.
const deletedAtOnce = 500

// removeSelected deletes the objects of a list, and answers with them as they were. Several
// hundred at a time go in one change of the store: all of them or none. An object that is
// changed meanwhile is selected anew.
func (s *Server) removeSelected(c *call) error {
	selector, err := parseSelector(c)
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
	var gone [][]byte
	for attempt := 1; ; {
		snapshot := s.cache.Snapshot()
		if trial != nil {
			snapshot = trial.snapshot
		}
		objects := s.selected(c, snapshot, selector, given)
		chunk := objects[:min(len(objects), deletedAtOnce)]
		if trial != nil {
			chunk = objects
		}
		err := s.removeAll(c, trial, chunk)
		switch {
		case err == nil:
			for _, object := range chunk {
				text, err := document(withStatus(snapshot, object), c.version)
				if err != nil {
					return err
				}
				gone = append(gone, text)
			}
			if len(chunk) == len(objects) {
				return s.answerRemoved(c, snapshot, gone)
			}
		case !meanwhile(err) || attempt == attempts:
			if len(gone) > 0 {
				err = fmt.Errorf("%w (%d objects were deleted before)", err, len(gone))
			}
			return err
		default:
			attempt++
		}
		if trial == nil {
			if err := s.catchUp(c); err != nil {
				return err
			}
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
		err := s.checkSource(ops[i])
		if err == nil {
			err = s.unreserved(c.r, ops[i])
		}
		if err != nil {
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
	apply := s.store.Apply
	if trial != nil {
		apply = trial.apply
	}
	revision, _, err := apply(c.r.Context(), ops)
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

func (s *Server) answerRemoved(c *call, snapshot *cache.Snapshot, gone [][]byte) error {
	head, err := json.Marshal(struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta `json:"metadata"`
	}{c.typeMeta("List"), metav1.ListMeta{ResourceVersion: snapshot.Version()}})
	if err != nil {
		return err
	}
	body := slices.Concat(bytes.TrimSuffix(head, []byte("}")), []byte(`,"items":[`), bytes.Join(gone, []byte(",\n")), []byte("]}\n"))
	writeBody(c.w, 200, body)
	return nil
}
