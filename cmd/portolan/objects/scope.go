package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// scope is the set of objects that a command compares or restores: objects by their
// keys, or without keys all objects of some kinds, in a namespace or in all.
type scope struct {
	selection
	namespace string // empty for all
	allKinds  bool
	told      *cli.Progress // of reading it
}

// newScope parses KIND/NAME and its other forms, KIND, or nothing, which means all kinds.
func newScope(env *environment, args []string, namespace string, allNamespaces bool) (scope, error) {
	if err := cli.OneScope(allNamespaces, namespace != ""); err != nil {
		return scope{}, err
	}
	s := scope{selection: selection{kinds: inHistory(env.Schemas)}, allKinds: len(args) == 0, told: env.Progress()}
	if len(args) > 0 {
		var err error
		if s.selection, err = selectObjects(env.withSide(), args, namespace); err != nil {
			return scope{}, err
		}
		if err = s.withHistory(); err != nil {
			return scope{}, err
		}
		s.allKinds = s.every
	}
	if allNamespaces {
		if len(s.keys) > 0 {
			return scope{}, exit.With(exit.Usage, errors.New("an object is in one namespace: name it with -n instead of -A"))
		}
		return s, nil
	}
	s.namespace = cmp.Or(namespace, env.Namespace)
	return s, nil
}

// inHistory returns the kinds of which documents and the history contain everything. Others,
// such as Secret, are only compared and restored by name.
func inHistory(schemas schema.Set) []*schema.Schema {
	return slices.DeleteFunc(slices.Clone(schemas.All()), func(k *schema.Schema) bool { return k.Codec.Veiled() })
}

// String describes the scope in words.
func (s scope) String() string {
	where := "the whole store"
	if s.namespace != "" {
		where = "namespace " + s.namespace
	}
	switch {
	case len(s.keys) > 0:
		return strings.Join(cli.MapSlice(s.keys, config.Key.String), ", ")
	case s.allKinds:
		return where
	}
	return strings.Join(cli.MapSlice(s.kinds, func(k *schema.Schema) string { return k.Plural }), ", ") + " of " + where
}

// places returns the places of the objects, each with the name of one object, or empty for all
// objects there.
func (s scope) places() []namedPlace {
	var out []namedPlace
	for _, kind := range s.kinds {
		switch {
		case len(s.keys) > 0:
			for _, key := range s.keys {
				if key.Kind == kind.GroupVersionKind {
					out = append(out, namedPlace{place{kind, key.Namespace}, key.Name})
				}
			}
		case !kind.ClusterScoped:
			out = append(out, namedPlace{place{kind, s.namespace}, ""})
		case s.namespace == "" || !s.allKinds:
			out = append(out, namedPlace{place{kind, ""}, ""})
		}
	}
	return out
}

type namedPlace struct {
	place
	name string
}

type state struct {
	revision int64
	objects  map[config.Key]*unstructured.Unstructured
}

// at reads the state of the store at a revision; 0 means the current state with all
// acknowledged writes.
func (s scope) at(ctx context.Context, c *client.Client, revision int64) (state, error) {
	out := state{revision: revision, objects: map[config.Key]*unstructured.Unstructured{}}
	defer s.told.Clear()
	for _, p := range s.places() {
		s.told.Tell(fmt.Sprintf("read %s, reading %s", cli.CountOf(len(out.objects), "object"), p.kind.Plural))
		fresh := client.Freshness{Exact: out.revision, Consistent: true}
		which := client.Selection{Stored: true}
		if p.name != "" {
			which.Fields = fields.OneTermEqualSelector("metadata.name", p.name).String()
		}
		list, err := c.Fresh(fresh).List(ctx, client.Resource(p.kind), p.namespace, which)
		if err != nil {
			return state{}, err
		}
		if out.revision == 0 { // read the rest at the same revision
			if out.revision, err = strconv.ParseInt(list.GetResourceVersion(), 10, 64); err != nil {
				return state{}, fmt.Errorf("the revision that the server at %s is at cannot be read: %w", c.Server(), err)
			}
		}
		for i := range list.Items {
			object := &list.Items[i]
			if !ofStore(object) {
				continue
			}
			out.objects[config.Key{Kind: p.kind.GroupVersionKind, Namespace: object.GetNamespace(), Name: object.GetName()}] = object
		}
	}
	return out, nil
}

// keysOf returns the keys of all objects in some states, by kind, namespace and name.
func (s scope) keysOf(states ...state) []config.Key {
	seen := map[config.Key]bool{}
	var keys []config.Key
	for _, then := range states {
		for key := range then.objects {
			if !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	order := map[config.GroupVersionKind]int{}
	for i, kind := range s.kinds {
		order[kind.GroupVersionKind] = i
	}
	slices.SortFunc(keys, func(a, b config.Key) int {
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// demand reports objects of the scope that are in neither state: their names must be wrong.
func (s scope) demand(before, after state) error {
	var missing *multierror.Error
	for _, key := range s.keys {
		if before.objects[key] == nil && after.objects[key] == nil {
			missing = multierror.Append(missing, fmt.Errorf("%s: there was none at revision %d, and none at %d: see when there was with portolan history %s",
				key, before.revision, after.revision, key))
		}
	}
	return missing.ErrorOrNil()
}

// checkRevision refuses a number that is no revision.
func checkRevision(flag string, revision int64) error {
	if revision < 1 {
		return exit.With(exit.Usage, fmt.Errorf("%s %d: a revision is a number from 1 on, as apply, delete and history print it", flag, revision))
	}
	return nil
}
