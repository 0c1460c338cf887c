package rest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// removeNamespace deletes a namespace with all that is in it, if the caller may delete each of
// these objects. They go in changes of several hundred, in the order of their keys, and the
// namespace last: if something fails, what is left can be deleted again.
func (s *Server) removeNamespace(c *call) error {
	if slices.Contains(s.main.lasting, c.name) {
		return refusal.Forbidden(fmt.Sprintf("namespace %s is not deleted: the mesh has its own objects there; delete single objects in it", c.name))
	}
	given, values, err := s.readDeleteOptions(c)
	if err != nil {
		return err
	}
	dry, err := dryRun(values)
	if err != nil {
		return err
	}
	if err := s.checkGiven(c, given); err != nil {
		return err
	}
	servers := []*Server{s.main, s}
	var found faults
	var contents []string
	for _, one := range servers {
		contents = append(contents, one.checkContents(c, one.contentsOf(c.name), &found)...)
	}
	if len(found.causes) > 0 {
		return notDeleted(c, found)
	}
	if len(contents) > 0 {
		warn(c.w, []string{"with all that is in it: " + strings.Join(contents, ", ")})
	}
	if !dry {
		for _, one := range servers {
			if err := one.empty(c); err != nil {
				return err
			}
		}
	}
	return s.removeIf(c, given, values)
}

// checkGiven compares a precondition with the stored object, before anything else goes.
func (s *Server) checkGiven(c *call, given precondition) error {
	stored, err := s.store.Get(c.r.Context(), c.schema.GroupVersionKind, c.name, c.namespace)
	switch {
	case err != nil:
		return err
	case given.uid != "" && given.uid != stored.UID:
		return fmt.Errorf("%w: uid is %s, and the request expects %s: the object was deleted and made anew", storage.ErrConflict, stored.UID, given.uid)
	case given.resourceVersion != "" && given.resourceVersion != stored.ResourceVersion:
		return &storage.ConflictError{Key: c.key(), Expected: given.resourceVersion, Actual: stored.ResourceVersion}
	}
	return nil
}

func notDeleted(c *call, found faults) error {
	return refusal.Forbidden(fmt.Sprintf("namespace %s is not deleted: %s", c.name, sentence(found.causes)))
}

// contentsOf returns the objects in a namespace, in the order of their keys.
func (s *Server) contentsOf(namespace string) (out []*config.Config) {
	for object := range s.cache.Snapshot().Configs().Values() {
		if object.Namespace == namespace {
			out = append(out, object)
		}
	}
	return out
}

// checkContents reports why objects in the namespace of a call may not be deleted, once for each
// kind. It returns how many there are of each kind.
func (s *Server) checkContents(c *call, objects []*config.Config, found *faults) (contents []string) {
	counts := map[string]int{}
	for _, object := range objects {
		kind := s.schemas.Kind(object.GroupVersionKind)
		if err := s.permit(storage.Op{Verb: storage.Delete, Key: object.Key()}); err != nil {
			found.mayNotBe("", err.Error())
			continue
		}
		if counts[kind.Plural]++; counts[kind.Plural] > 1 {
			continue
		}
		wants := access.Request{Verb: "delete", Group: kind.Group, Version: kind.Versions[0], Resource: kind.Plural, Namespace: c.name}
		if err := s.authorize(c, wants); err != nil {
			found.mayNotBe("", fmt.Sprintf("it has %s, and %s", kind.Plural, strings.TrimSuffix(err.Error(), ".")))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		contents = append(contents, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return contents
}

// empty deletes what is in the namespace of a call. An object that is changed or made meanwhile
// is taken anew, and a change that is too large for the store is halved.
func (s *Server) empty(c *call) error {
	for attempt, most := 1, deletedAtOnce; ; {
		from := s.cache.Snapshot()
		objects := s.contentsOf(c.name)
		if len(objects) == 0 {
			return nil
		}
		objects = objects[:min(len(objects), most)]
		var found faults // some may be new
		if s.checkContents(c, objects, &found); len(found.causes) > 0 {
			return notDeleted(c, found)
		}
		for i, object := range objects {
			objects[i] = withComparedStatus(from, object)
		}
		switch err := s.removeAll(c, nil, objects); {
		case err == nil:
		case errors.Is(err, storage.ErrTooLarge) && most > 1:
			most /= 2
		case !meanwhile(err) || attempt == attempts || !s.catchUp(c, from):
			return fmt.Errorf("the namespace is emptied in part: %w", err)
		default:
			attempt++
		}
	}
}
