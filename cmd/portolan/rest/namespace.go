package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
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
		contents = append(contents, one.checkContents(c, one.contentsOf(one.cache.Snapshot(), c.name), &found)...)
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
		return otherUID(stored.UID, given.uid)
	case given.resourceVersion != "" && given.resourceVersion != stored.ResourceVersion:
		return &storage.ConflictError{Key: c.key(), Expected: given.resourceVersion, Actual: stored.ResourceVersion}
	}
	return nil
}

func notDeleted(c *call, found faults) error {
	return refusal.Forbidden(fmt.Sprintf("namespace %s is not deleted: %s", c.name, sentence(found.causes)))
}

// contentsOf returns the objects in a namespace, in the order of their keys, as the store compares
// them.
func (s *Server) contentsOf(from *cache.Snapshot, namespace string) (out []*config.Config) {
	for _, kind := range s.schemas.All() {
		if kind.ClusterScoped {
			continue
		}
		for object := range from.List(kind.GroupVersionKind, namespace) {
			out = append(out, withComparedStatus(from, object))
		}
	}
	slices.SortFunc(out, func(a, b *config.Config) int { return strings.Compare(a.Key().Path(), b.Key().Path()) })
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

// empty deletes what is in the namespace of a call, also what is made there meanwhile.
func (s *Server) empty(c *call) error {
	var found faults // of what is new
	pick := func(from *cache.Snapshot) []*config.Config {
		objects := s.contentsOf(from, c.name)
		if s.checkContents(c, objects, &found); len(found.causes) > 0 {
			return nil
		}
		return objects
	}
	for len(s.contentsOf(s.cache.Snapshot(), c.name)) > 0 {
		_, _, err := s.removeInParts(c, nil, pick)
		switch {
		case len(found.causes) > 0:
			return notDeleted(c, found)
		case err != nil:
			return fmt.Errorf("the namespace is emptied in part: %w", err)
		}
	}
	return nil
}
