package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Kind returns the schema of a kind, given in any served version. The error is a
// storage.ErrInvalid.
func Kind(schemas schema.Set, kind config.GroupVersionKind) (*schema.Schema, error) {
	found := schemas.Kind(kind)
	if found == nil {
		return nil, fmt.Errorf("%w: kind %s of group %s is unknown to this store", storage.ErrInvalid, kind.Kind, kind.Group)
	}
	if kind.Version != found.Version && !found.Serves(kind.Version) {
		return nil, fmt.Errorf("%w: kind %s is not served as version %q: use %s",
			storage.ErrInvalid, kind.Kind, kind.Version, strings.Join(found.Versions, " or "))
	}
	return found, nil
}

// Key returns the key of an object under the canonical version of its kind. The error is a
// storage.ErrInvalid if no object can have the key.
func Key(schemas schema.Set, kind config.GroupVersionKind, name, namespace string) (config.Key, error) {
	found, err := Kind(schemas, kind)
	if err != nil {
		return config.Key{}, err
	}
	if err := checkPart("name", name); err != nil {
		return config.Key{}, err
	}
	switch {
	case found.ClusterScoped && namespace != "":
		return config.Key{}, fmt.Errorf("%w: %s %s has a namespace, and its kind has none", storage.ErrInvalid, kind.Kind, name)
	case !found.ClusterScoped && namespace == "":
		return config.Key{}, fmt.Errorf("%w: %s %s has no namespace, and its kind needs one", storage.ErrInvalid, kind.Kind, name)
	case !found.ClusterScoped:
		if err := checkPart("namespace", namespace); err != nil {
			return config.Key{}, err
		}
	}
	return config.Key{Kind: found.GroupVersionKind, Namespace: namespace, Name: name}, nil
}

// checkPart refuses a name or a namespace that could not be read back from a Path.
func checkPart(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: the %s is missing", storage.ErrInvalid, what)
	case s == "_" || s == "." || s == "..":
		return fmt.Errorf("%w: the %s may not be %q", storage.ErrInvalid, what, s)
	case strings.ContainsAny(s, "/\x00") || !utf8.ValidString(s):
		return fmt.Errorf("%w: the %s %q has characters that it may not have", storage.ErrInvalid, what, s)
	}
	return nil
}

// Selection returns a selection with its kind under the canonical version. The error is a
// storage.ErrInvalid if no object can be in the selection.
func Selection(schemas schema.Set, selection storage.Selection) (storage.Selection, error) {
	if selection.Name != "" {
		key, err := Key(schemas, selection.Kind, selection.Name, selection.Namespace)
		selection.Kind = key.Kind
		return selection, err
	}
	if selection.Kind != (config.GroupVersionKind{}) {
		found, err := Kind(schemas, selection.Kind)
		if err != nil {
			return selection, err
		}
		if found.ClusterScoped && selection.Namespace != "" {
			return selection, fmt.Errorf("%w: objects of kind %s are in no namespace", storage.ErrInvalid, selection.Kind.Kind)
		}
		selection.Kind = found.GroupVersionKind
	}
	if selection.Namespace != "" {
		return selection, checkPart("namespace", selection.Namespace)
	}
	return selection, nil
}

// Revision reads a version of a store that counts revisions from 1. The error
// is a storage.ErrInvalid.
func Revision(version string) (int64, error) {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil || revision < 1 {
		return 0, fmt.Errorf("%w: %q is not a version of the store", storage.ErrInvalid, version)
	}
	return revision, nil
}

// Between returns the bounds of a query as revisions; an empty one is no bound.
func Between(query storage.Query) (after, until int64, err error) {
	until = math.MaxInt64
	if query.After != "" {
		if after, err = Revision(query.After); err != nil {
			return 0, 0, err
		}
	}
	if query.Until != "" {
		until, err = Revision(query.Until)
	}
	return after, until, err
}
