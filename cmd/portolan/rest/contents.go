package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// contents is what is in a namespace that somebody wants to delete, and what prevents that. It
// names no kind that the caller may not list.
type contents struct {
	told   []string // how many there are of each kind
	others int      // objects of kinds that the caller may not list
	kept   bool     // whether some of the others may not be deleted
	found  faults
}

// check adds the objects that a server has in the namespace of a call: whether the caller may
// delete those of each kind, and whether anybody may delete them.
func (n *contents) check(c *call, s *Server, objects []*config.Config) {
	of := map[*schema.Schema][]*config.Config{}
	for _, object := range objects {
		kind := s.schemas.Kind(object.GroupVersionKind)
		of[kind] = append(of[kind], object)
	}
	byName := func(a, b *schema.Schema) int { return strings.Compare(a.Plural, b.Plural) }
	for _, kind := range slices.SortedFunc(maps.Keys(of), byName) {
		listed := s.mayList(c, kind, c.name)
		err := s.authorize(c, requestOf("delete", kind, c.name))
		switch {
		case err != nil:
			n.keep(c, listed, fmt.Sprintf("it has %s, and %s", kind.Plural, strings.TrimSuffix(err.Error(), ".")))
			continue
		case listed:
			n.told = append(n.told, fmt.Sprintf("%d %s", len(of[kind]), kind.Plural))
		default:
			n.others += len(of[kind])
		}
		for _, object := range of[kind] {
			if err := s.mayStore(c, storage.Op{Verb: storage.Delete, Key: object.Key()}); err != nil {
				n.keep(c, listed, err.Error())
			}
		}
	}
}

// keep adds why objects may not be deleted. Whoever may not list them is told of them once, without
// what they are.
func (n *contents) keep(c *call, listed bool, why string) {
	switch {
	case listed:
		n.found.mayNotBe("", why)
	case !n.kept:
		n.kept = true
		n.found.mayNotBe("", fmt.Sprintf("it has objects that user %q may not list, and that are not deleted", c.identity.User))
	}
}

// checkGrants adds why objects may not be deleted because of the rights and hosts in them. The
// error says that nobody can tell now.
func (n *contents) checkGrants(c *call, s *Server, objects []*config.Config) error {
	if len(n.found.causes) > 0 {
		return nil
	}
	ops := make([]storage.Op, len(objects))
	for i, object := range objects {
		ops[i] = storage.Op{Verb: storage.Delete, Key: object.Key()}
	}
	for i, err := range s.granting(c, ops) {
		if apierrors.IsServiceUnavailable(err) {
			return err
		}
		if err != nil {
			n.keep(c, s.mayList(c, s.schemas.Kind(ops[i].Key.Kind), c.name), fmt.Sprintf("%s: %v", ops[i].Key, err))
		}
	}
	return nil
}

// String says how many objects there are of each kind.
func (n *contents) String() string {
	told := n.told
	if n.others > 0 {
		told = append(told, fmt.Sprintf("%d objects of kinds that you may not list", n.others))
	}
	return strings.Join(told, ", ")
}

func (n *contents) refusal(c *call) error {
	return refusal.Forbidden(fmt.Sprintf("namespace %s is not deleted: %s", c.name, sentence(n.found.causes)))
}
