package objects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// selection is the set of objects that arguments name: objects by their keys, or
// without keys all objects of some kinds.
type selection struct {
	kinds []*schema.Schema
	keys  []config.Key
	every bool // the kinds are all that there are, by the word "all"
}

// everything is the word for all kinds of which documents contain everything.
const everything = "all"

// selectObjects parses KIND[,KIND...], all, KIND NAME..., KIND/NAME... or KIND/NAMESPACE/NAME...;
// there is at least one argument. Names without a namespace are in the namespace of the
// environment.
func selectObjects(env *environment, args []string, namespace string) (selection, error) {
	var s selection
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			if err := s.addReference(env, arg, namespace); err != nil {
				return selection{}, exit.With(exit.Usage, err)
			}
		}
		return s, nil
	}
	if args[0] == everything {
		if len(args) > 1 {
			return selection{}, exit.With(exit.Usage, fmt.Errorf("%s %s: all is every kind: leave the names out", args[0], args[1]))
		}
		return selection{kinds: inHistory(cli.OfMesh(env.Schemas)), every: true}, nil
	}
	for _, name := range strings.Split(args[0], ",") {
		kind, err := cli.KindNamed(env.Schemas, name)
		if err != nil {
			return selection{}, exit.With(exit.Usage, err)
		}
		if !slices.Contains(s.kinds, kind) {
			s.kinds = append(s.kinds, kind)
		}
	}
	if len(args) > 1 && len(s.kinds) > 1 {
		return selection{}, exit.With(exit.Usage, fmt.Errorf("%s %s: give names of one kind, or KIND/NAME", args[0], args[1]))
	}
	for _, name := range args[1:] {
		if name == "" || strings.Contains(name, "/") {
			return selection{}, exit.With(exit.Usage, fmt.Errorf("%q is not a name: use %s NAME..., or KIND/NAME for each object", name, args[0]))
		}
		s.add(env, s.kinds[0], namespace, name)
	}
	return s, nil
}

// oneObject parses the name of one object; what says in errors what the command does with it.
func oneObject(env *environment, args []string, namespace, what string) (config.Key, *schema.Schema, error) {
	selected, err := selectObjects(env, args, namespace)
	if err == nil && len(selected.keys) != 1 {
		err = exit.With(exit.Usage, fmt.Errorf("name one object to %s: KIND/NAME or KIND NAME", what))
	}
	if err != nil {
		return config.Key{}, nil, err
	}
	return selected.keys[0], selected.kinds[0], nil
}

// addReference adds KIND/NAME or KIND/NAMESPACE/NAME.
func (s *selection) addReference(env *environment, reference, namespace string) error {
	if strings.Contains(reference, ",") {
		return fmt.Errorf("%q names several objects: separate them by spaces: %s", reference, strings.ReplaceAll(reference, ",", " "))
	}
	parts := strings.Split(reference, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return fmt.Errorf("%q names no object: use KIND/NAME or KIND/NAMESPACE/NAME", reference)
	}
	kind, err := cli.KindNamed(env.Schemas, parts[0])
	if err != nil {
		return err
	}
	if len(parts) == 3 {
		if namespace != "" && namespace != parts[1] {
			return fmt.Errorf("%s is in namespace %s, and -n says %s: leave one of them out", reference, parts[1], namespace)
		}
		namespace = parts[1]
	}
	s.add(env, kind, namespace, parts[len(parts)-1])
	return nil
}

// add adds an object, once.
func (s *selection) add(env *environment, kind *schema.Schema, namespace, name string) {
	key := config.Key{Kind: kind.GroupVersionKind, Namespace: env.namespaceOf(kind, namespace), Name: name}
	if !slices.Contains(s.keys, key) {
		s.keys = append(s.keys, key)
	}
	if !slices.Contains(s.kinds, kind) {
		s.kinds = append(s.kinds, kind)
	}
}

// namespaceOf returns the namespace of an object of a kind, given the value of -n.
func (e *environment) namespaceOf(kind *schema.Schema, namespace string) string {
	switch {
	case kind.ClusterScoped:
		return ""
	case namespace == "":
		return e.Namespace
	}
	return namespace
}

// withHistory refuses kinds that are kept beside the mesh.
func (s selection) withHistory() error {
	for _, kind := range s.kinds {
		if cli.BesideMesh(kind.GroupVersionKind) {
			return exit.With(exit.Usage, fmt.Errorf("%ss have no history, and no export has them: portolan get %s shows those there are", kind.Kind, kind.Plural))
		}
	}
	return nil
}
