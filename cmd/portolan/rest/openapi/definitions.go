package openapi

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// definitionPrefix begins references to definitions.
	definitionPrefix = "#/definitions/"
	// kindExtension names the kinds that a definition or an operation is about.
	kindExtension    = "x-kubernetes-group-version-kind"
	unknownExtension = "x-kubernetes-preserve-unknown-fields"
	eitherExtension  = "x-kubernetes-int-or-string"
	listExtension    = "x-kubernetes-list-type"
	keysExtension    = "x-kubernetes-list-map-keys"
)

// Definitions returns a definition for each kind and each of its versions, for lists of
// them, and for all types that these refer to. The name of a kind is as in Kubernetes:
// io.istio.networking.v1.VirtualService. References begin with #/definitions/. All versions
// of a kind share the type of its spec. The definitions are fit for
// managedfields.NewTypeConverter.
func Definitions(schemas schema.Set) map[string]*spec.Schema {
	return define(schemas).definitions
}

func define(schemas schema.Set) *definer {
	d := &definer{definitions: map[string]*spec.Schema{}, named: map[string][]string{}, tables: map[string]string{}}
	for kind, version := range versionsOf(schemas) {
		d.kind(kind, version)
	}
	for _, shared := range []any{metav1.Status{}, metav1.DeleteOptions{}, metav1.WatchEvent{}, metav1.Patch{}} {
		d.goType(reflect.TypeOf(shared))
	}
	return d
}

// versionsOf iterates over the kinds in each of their versions. A version of another group is a
// kind of that group.
func versionsOf(schemas schema.Set) iter.Seq2[*schema.Schema, string] {
	return func(yield func(*schema.Schema, string) bool) {
		for _, kind := range schemas.All() {
			for _, version := range kind.Versions {
				in := kind
				if group, short, other := strings.Cut(version, "/"); other {
					elsewhere := *kind
					elsewhere.Group, elsewhere.Codec = group, kind.Spellings[version]
					in, version = &elsewhere, short
				}
				if !yield(in, version) {
					return
				}
			}
		}
	}
}

// sampleOf returns an empty spec as documents of a kind have it.
func sampleOf(k *schema.Schema) any {
	if spelled, ok := k.Codec.(interface{ Written() any }); ok {
		return spelled.Written()
	}
	return k.Codec.New()
}

// definer collects definitions.
type definer struct {
	definitions map[string]*spec.Schema
	// named has the fields of each type under its name in the tables of descriptions and of
	// required fields. A kind is a type too.
	named map[string][]string
	// tables has the names in the tables by the names of definitions.
	tables map[string]string
}

// kind defines a kind in one version, and its list.
func (d *definer) kind(k *schema.Schema, version string) {
	name := kindName(k, version)
	fields := map[string]spec.Schema{
		"apiVersion": describedAs(spec.StringProperty(), described().text(anyKind, "apiVersion")),
		"kind":       describedAs(spec.StringProperty(), described().text(anyKind, "kind")),
		"metadata":   describedAs(new(d.goType(reflect.TypeFor[metav1.ObjectMeta]())), described().text(anyKind, "metadata")),
	}
	if status := schema.NewStatus(k.GroupVersionKind); status != nil {
		fields["status"] = describedAs(new(d.like(status)), described().text(anyKind, "status"))
	}
	content := d.like(sampleOf(k))
	required := requiredFields[k.Kind]
	if path := k.Codec.Path(); path != "" {
		fields[path] = describedAs(&content, described().text(anyKind, path))
	} else { // its fields stand at the top level
		top := d.definitions[strings.TrimPrefix(content.Ref.String(), definitionPrefix)]
		for field, s := range top.Properties {
			fields[field] = s
		}
		required = append(slices.Clone(required), top.Required...)
	}
	d.name(name, k.Kind, fields)
	d.definitions[name] = &spec.Schema{
		SchemaProps:      spec.SchemaProps{Type: []string{"object"}, Description: described().text(k.Kind, ""), Properties: fields, Required: required},
		VendorExtensible: ofKinds(kindMeta(k, version, "")),
	}
	d.definitions[name+"List"] = &spec.Schema{
		SchemaProps: spec.SchemaProps{
			Type: []string{"object"}, Description: "A list of objects of the kind " + k.Kind + ".", Required: []string{"items"},
			Properties: map[string]spec.Schema{
				"apiVersion": fields["apiVersion"],
				"kind":       fields["kind"],
				"metadata":   d.goType(reflect.TypeFor[metav1.ListMeta]()),
				"items":      describedAs(spec.ArrayProperty(spec.RefSchema(definitionPrefix+name)), "The objects."),
			},
		},
		VendorExtensible: ofKinds(kindMeta(k, version, "List")),
	}
}

// like returns the schema of values like a sample: a message, or a pointer to a Go struct.
func (d *definer) like(sample any) spec.Schema {
	if m, ok := sample.(proto.Message); ok {
		return d.message(m.ProtoReflect().Descriptor())
	}
	return d.goType(reflect.TypeOf(sample))
}

// name remembers the fields of a definition under its name in the tables.
func (d *definer) name(definition, table string, fields map[string]spec.Schema) {
	d.tables[definition] = table
	d.named[table] = slices.Sorted(maps.Keys(fields))
}

// kindName returns the name of the definition of a kind.
func kindName(k *schema.Schema, version string) string {
	if k.Group == "" {
		return util.ToRESTFriendlyName("k8s.io/api/core/" + version + "." + k.Kind)
	}
	return util.ToRESTFriendlyName(k.Group + "/" + version + "." + k.Kind)
}

// kindMeta is the extension that names a kind, or the kind with a suffix.
func kindMeta(k *schema.Schema, version, suffix string) map[string]any {
	return map[string]any{"group": k.Group, "version": version, "kind": k.Kind + suffix}
}

func ofKinds(kinds ...any) spec.VendorExtensible {
	return spec.VendorExtensible{Extensions: spec.Extensions{kindExtension: kinds}}
}

// describedAs returns a schema with a description, unless that is empty.
func describedAs(s *spec.Schema, description string) spec.Schema {
	if description != "" {
		s.Description = description
	}
	return *s
}
