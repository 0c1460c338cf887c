package rest

import (
	"errors"
	"fmt"
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
	dry, err := dryRun(c.query["dryRun"])
	if err != nil {
		return err
	}
	servers := []*Server{s.main, s}
	var found faults
	for _, one := range servers {
		one.checkContents(c, &found)
	}
	if len(found.causes) > 0 {
		return refusal.Forbidden(fmt.Sprintf("namespace %s is not deleted: %s", c.name, sentence(found.causes)))
	}
	if !dry {
		for _, one := range servers {
			if err := one.empty(c); err != nil {
				return err
			}
		}
	}
	return s.remove(c)
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

// checkContents reports why what is in the namespace of a call may not be deleted, once for
// each kind.
func (s *Server) checkContents(c *call, found *faults) {
	counts := map[string]int{}
	for _, object := range s.contentsOf(c.name) {
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
}

// empty deletes what is in the namespace of a call. An object that is changed or made meanwhile
// is taken anew.
func (s *Server) empty(c *call) error {
	for attempt, most := 1, deletedAtOnce; ; {
		from := s.cache.Snapshot()
		objects := s.contentsOf(c.name)
		if len(objects) == 0 {
			return nil
		}
		objects = objects[:min(len(objects), most)]
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
