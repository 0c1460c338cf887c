package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// Schema describes one kind.
type Schema struct {
	// GroupVersionKind is the canonical kind, under which objects are stored.
	config.GroupVersionKind

	// Versions are the API versions under which the kind is accepted and served,
	// preferred first. All mean the same object. A kind of the core group may have one of
	// another group, such as events.k8s.io/v1.
	Versions []string
	// Spellings are the codecs of documents in versions that name fields otherwise than Codec
	// does, by version.
	Spellings map[string]config.Codec

	// Plural, Singular and ShortNames are its lower-case names in paths and
	// commands.
	Plural, Singular string
	ShortNames       []string

	// ClusterScoped kinds have no namespace.
	ClusterScoped bool

	// Internal kinds are never exported to other control planes: secrets, and objects that
	// say who may do what.
	Internal bool

	// Most is how many objects of the kind the config API lets people make, 0 for any number.
	Most int

	// Codec reads, checks and writes the specs of the kind.
	Codec config.Codec

	// Check reports faults of an object's spec, and warns of fields that have no effect
	// or not the expected one. It gets specs of the Codec only, and may be nil.
	Check func(*config.Config, *Report)
}

// Validate reports all faults of an object at once, faults of its metadata first. Warnings
// name accepted fields that have no effect or not the expected one, among them fields that
// are not served yet. The error is a *multierror.Error of *FieldError, or nil.
func (s *Schema) Validate(c *config.Config) ([]Warning, error) {
	r := s.report(c)
	return r.warnings, r.faults.ErrorOrNil()
}

// UnservedSecurity returns the fields of an object that would make the mesh more secure and
// are not served yet. Validate warns of them; a source of objects should refuse them. The error
// is that of Validate.
func (s *Schema) UnservedSecurity(c *config.Config) ([]*FieldError, error) {
	r := s.report(c)
	return r.insecure, r.faults.ErrorOrNil()
}

func (s *Schema) report(c *config.Config) *Report {
	r := &Report{object: c, specPath: s.Codec.Path()}
	r.meta(c, s.ClusterScoped)
	switch {
	case !s.Codec.Is(c.Spec):
		r.Fault(r.specPath, "is missing: %s needs one", s.Kind)
	case s.Check != nil:
		s.Check(c, r)
		r.warnOfShortNames()
	}
	return r
}

// FieldError is a fault of one field. Field is the path as YAML documents write it, such as
// spec.http[0].route[1].weight; empty for the object as a whole.
type FieldError struct {
	Field, Message string
}

// Error implements error.
func (e *FieldError) Error() string { return strings.TrimPrefix(e.Field+": "+e.Message, ": ") }

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

// With returns the schemas of both sets, those of s first.
func (s Set) With(more Set) Set { return Set{slices.Concat(s.schemas, more.schemas)} }

// Checking returns the set with a further check of the objects of one kind, which it has: for rules
// that need to know more than this package does.
func (s Set) Checking(kind config.GroupVersionKind, check func(*config.Config, *Report)) Set {
	out := NewSet(s.schemas...)
	for i, k := range out.schemas {
		if k.GroupVersionKind != kind {
			continue
		}
		more := *k
		more.Check = func(c *config.Config, r *Report) {
			if k.Check != nil {
				k.Check(c, r)
			}
			check(c, r)
		}
		out.schemas[i] = &more
	}
	return out
}

// Kind finds the schema of a kind, whatever its version; nil if the kind is unknown.
func (s Set) Kind(kind config.GroupVersionKind) *Schema {
	for _, k := range s.schemas {
		if k.Group == kind.Group && k.Kind == kind.Kind {
			return k
		}
	}
	return nil
}

// Resolve finds the schema of an apiVersion and kind of a document. The error says
// which of them is unknown, and lists the known ones.
func (s Set) Resolve(apiVersion, kind string) (*Schema, error) {
	group, version, grouped := strings.Cut(apiVersion, "/")
	schema := s.Kind(config.GroupVersionKind{Group: group, Kind: kind})
	if core := s.Kind(config.GroupVersionKind{Kind: kind}); core != nil && (!grouped || core.Serves(apiVersion)) {
		schema, version = core, apiVersion
	}
	if schema == nil {
		return nil, s.unknown(apiVersion, kind)
	}
	if !schema.Serves(version) {
		return nil, fmt.Errorf("kind %s is not served as apiVersion %q: use %s", kind, apiVersion, strings.Join(schema.APIVersions(), " or "))
	}
	return schema, nil
}

// unknown returns the error about a kind that the set lacks. One that is kept beside the mesh is
// known, but not here.
func (s Set) unknown(apiVersion, kind string) error {
	beside := slices.ContainsFunc(Side().schemas, func(k *Schema) bool {
		return k.Kind == kind && (k.Serves(apiVersion) || slices.Contains(k.APIVersions(), apiVersion))
	})
	if !beside {
		return fmt.Errorf("unknown kind %q of apiVersion %q: see portolan api-resources for those served%s", kind, apiVersion, s.suggestion(kind))
	}
	of := ""
	if kind == ConfigMap.Kind {
		of = "; Istio's mesh configuration is an object MeshConfig of portolan.io/v1 here (see docs/tasks/mesh-defaults.md)"
	}
	return fmt.Errorf("kind %s configures nothing in the mesh: leave it out, or keep it beside the mesh with portolan apply%s", kind, of)
}

// suggestion returns the end of an error about an unknown kind: a similar known kind, empty if
// there is none.
func (s Set) suggestion(kind string) string {
	names := make([]string, len(s.schemas))
	for i, k := range s.schemas {
		names[i] = k.Kind
	}
	i := slices.Index(names, spelling.Nearest(kind, names))
	if i < 0 {
		return ""
	}
	return fmt.Sprintf(", or did you mean %s of apiVersion %s?", names[i], s.schemas[i].APIVersions()[0])
}

// APIVersions returns the apiVersions that documents of the kind may have, preferred first.
func (s *Schema) APIVersions() []string {
	out := make([]string, len(s.Versions))
	for i, version := range s.Versions {
		out[i] = config.GroupVersionKind{Group: s.Group, Version: version}.APIVersion()
	}
	return out
}

// Type returns what package config needs to decode an apiVersion and kind. It is a
// config.Resolver.
func (s Set) Type(apiVersion, kind string) (config.Type, error) {
	k, err := s.Resolve(apiVersion, kind)
	if err != nil {
		return config.Type{}, err
	}
	codec := k.Codec
	if spelled, ok := k.Spellings[apiVersion]; ok {
		codec = spelled
	}
	return config.Type{GroupVersionKind: k.GroupVersionKind, Codec: codec, ClusterScoped: k.ClusterScoped}, nil
}

// Named finds a schema by plural, singular, short or kind name, in any case; nil if there
// is none.
func (s Set) Named(name string) *Schema {
	name = strings.ToLower(name)
	for _, k := range s.schemas {
		if name == k.Plural || name == k.Singular || name == strings.ToLower(k.Kind) || slices.Contains(k.ShortNames, name) {
			return k
		}
	}
	return nil
}

// At finds a schema by the parts of a path of the API, and its version there; nil if the group has
// none of that name.
func (s Set) At(group, version, plural string) (*Schema, string) {
	if core := s.Plural("", plural); core != nil && group != "" && core.Serves(group+"/"+version) {
		return core, group + "/" + version
	}
	return s.Plural(group, plural), version
}

// Plural finds a schema by group and plural name; nil if there is none.
func (s Set) Plural(group, plural string) *Schema {
	for _, k := range s.schemas {
		if k.Group == group && k.Plural == plural {
			return k
		}
	}
	return nil
}
