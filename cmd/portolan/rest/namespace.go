package rest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
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
	var has contents
	for _, one := range servers {
		objects := one.contentsOf(one.cache.Snapshot(), c.name)
		has.check(c, one, objects)
		if err := has.checkGrants(c, one, objects); err != nil {
			return err
		}
	}
	if len(has.found.causes) > 0 {
		return has.refusal(c)
	}
	if told := has.String(); told != "" {
		warn(c.w, []string{"with all that is in it: " + told})
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

// empty deletes what is in the namespace of a call, also what is made there meanwhile.
func (s *Server) empty(c *call) error {
	var has contents // also what is new
	pick := func(from *cache.Snapshot) []*config.Config {
		objects := s.contentsOf(from, c.name)
		if has.check(c, s, objects); len(has.found.causes) > 0 {
			return nil
		}
		return objects
	}
	for len(s.contentsOf(s.cache.Snapshot(), c.name)) > 0 {
		_, _, err := s.removeInParts(c, nil, pick)
		switch {
		case len(has.found.causes) > 0:
			return has.refusal(c)
		case err != nil:
			return fmt.Errorf("the namespace is emptied in part: %w", err)
		}
	}
	return nil
}
