package rest

import (
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
	dry, err := dryRun(c.query["dryRun"])
	if err != nil {
		return err
	}
	servers := []*Server{s.main, s}
	var found faults
	var contents []string
	for _, one := range servers {
		contents = append(contents, one.checkContents(c, &found)...)
	}
	if len(found.causes) > 0 {
		return refusal.Forbidden(fmt.Sprintf("namespace %s is not deleted: %s", c.name, sentence(found.causes)))
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
// each kind. It returns how many objects there are of each kind.
func (s *Server) checkContents(c *call, found *faults) (contents []string) {
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
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		contents = append(contents, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return contents
}

// empty deletes what is in the namespace of a call. An object that is changed or made meanwhile
// is taken anew.
func (s *Server) empty(c *call) error {
	for attempt := 1; ; {
		objects := s.contentsOf(c.name)
		if len(objects) == 0 {
			return nil
		}
		objects = objects[:min(len(objects), deletedAtOnce)]
		for i, object := range objects {
			objects[i] = withComparedStatus(s.cache.Snapshot(), object)
		}
		switch err := s.removeAll(c, nil, objects); {
		case err == nil:
		case !meanwhile(err) || attempt == attempts:
			return fmt.Errorf("the namespace is emptied in part: %w", err)
		default:
			attempt++
		}
		if err := s.catchUp(c); err != nil {
			return err
		}
	}
}
