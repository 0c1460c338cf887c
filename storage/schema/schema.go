package schema

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Schema is what is known of one kind.
type Schema struct {
	// GroupVersionKind is the canonical one: that under which objects are kept.
	config.GroupVersionKind

	// Versions are the API versions under which the kind is accepted and served,
	// preferred first. All mean the same object.
	Versions []string

	// Plural, Singular and ShortNames are its lower-case names in paths and
	// commands.
	Plural, Singular string
	ShortNames       []string

	// ClusterScoped kinds have no namespace.
	ClusterScoped bool

	// NewSpec returns an empty message of the kind's type.
	NewSpec func() proto.Message

	// Validate reports every fault of an object at once. The warnings name
	// what is accepted and yet will not do what it seems to, fields that are
	// not served yet among them. The error is a *multierror.Error of
	// *FieldError, or nil.
	Validate func(*config.Config) (warnings []string, err error)
}

// FieldError is a fault of one field. Field is the path as it stands in YAML,
// such as spec.http[0].route[1].weight.
type FieldError struct {
	Field, Message string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// Serves says whether the kind is served under an API version.
func (s *Schema) Serves(version string) bool { return slices.Contains(s.Versions, version) }

// Set is an immutable collection of schemas in a fixed order.
type Set struct {
	schemas []*Schema
}

// NewSet collects schemas.
func NewSet(schemas ...*Schema) Set { return Set{slices.Clone(schemas)} }

// All returns the schemas in order. The caller must not modify it.
func (s Set) All() []*Schema { return s.schemas }

// Kind finds the schema of a kind whatever the version named, nil where the
// kind is unknown.
func (s Set) Kind(kind config.GroupVersionKind) *Schema {
	for _, k := range s.schemas {
		if k.Group == kind.Group && k.Kind == kind.Kind {
			return k
		}
	}
	return nil
}

// Resolve finds the schema of an apiVersion and kind as they stand in a
// document. The error says which is unknown, and what is served.
func (s Set) Resolve(apiVersion, kind string) (*Schema, error) {
	group, version, _ := strings.Cut(apiVersion, "/")
	schema := s.Kind(config.GroupVersionKind{Group: group, Kind: kind})
	if schema == nil {
		return nil, fmt.Errorf("unknown kind %q of apiVersion %q: see portolan api-resources for those served", kind, apiVersion)
	}
	if !schema.Serves(version) {
		return nil, fmt.Errorf("kind %s is not served as apiVersion %q: use %s/%s",
			kind, apiVersion, group, strings.Join(schema.Versions, " or "+group+"/"))
	}
	return schema, nil
}

// Type finds what the codec of package config has to know of an apiVersion and
// kind. It is a config.Resolver.
func (s Set) Type(apiVersion, kind string) (config.Type, error) {
	k, err := s.Resolve(apiVersion, kind)
	if err != nil {
		return config.Type{}, err
	}
	return config.Type{GroupVersionKind: k.GroupVersionKind, NewSpec: k.NewSpec, ClusterScoped: k.ClusterScoped}, nil
}

// Named finds a schema by plural, singular, short or kind name, whatever the
// case; nil where there is none.
func (s Set) Named(name string) *Schema {
	name = strings.ToLower(name)
	for _, k := range s.schemas {
		if name == k.Plural || name == k.Singular || name == strings.ToLower(k.Kind) || slices.Contains(k.ShortNames, name) {
			return k
		}
	}
	return nil
}

// Plural finds a schema by group and plural name; nil where there is none.
func (s Set) Plural(group, plural string) *Schema {
	for _, k := range s.schemas {
		if k.Group == group && k.Plural == plural {
			return k
		}
	}
	return nil
}
