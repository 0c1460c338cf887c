package schema

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// UnknownMeshConfigFields returns the entries of the table of MeshConfig that name no field.
func UnknownMeshConfigFields() (out []string) {
	for _, path := range meshConfigFields().entries("") {
		if !slices.ContainsFunc(MeshConfigFields(), func(f MeshConfigField) bool { return f.Path == path }) {
			out = append(out, path)
		}
	}
	return out
}

// MeshConfigField says what becomes of one field of MeshConfig.
type MeshConfigField struct {
	// Path is its path from the top, such as defaultConfig.proxyHeaders.server.
	Path string
	// Served says that the field has an effect.
	Served bool
	// FileOnly says that only the file of --mesh-config sets it.
	FileOnly bool
	// Reason says why a field that is not served has no effect.
	Reason string
}

// MeshConfigFields returns all fields of MeshConfig by path, with those of messages that are
// served in part. A field without an entry in the table has no reason.
func MeshConfigFields() []MeshConfigField {
	out := listFields("", (&meshv1alpha1.MeshConfig{}).ProtoReflect().Descriptor(), meshConfigFields())
	slices.SortFunc(out, func(a, b MeshConfigField) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// entries returns the paths of all entries of a table.
func (f fields) entries(path string) (out []string) {
	for _, name := range sortedKeys(f) {
		if f[name].fields != nil {
			out = append(out, f[name].fields.entries(path+name+".")...)
		} else {
			out = append(out, path+name)
		}
	}
	return out
}

func listFields(path string, m protoreflect.MessageDescriptor, of fields) (out []MeshConfigField) {
	for i := range m.Fields().Len() {
		name := m.Fields().Get(i).JSONName()
		f, known := of[name]
		if f.fields != nil {
			out = append(out, listFields(path+name+".", m.Fields().Get(i).Message(), f.fields)...)
			continue
		}
		out = append(out, MeshConfigField{
			Path: path + name, Served: known && f.idle == "", FileOnly: path == "" && slices.Contains(fileOnly, name),
			Reason: strings.TrimPrefix(f.idle, "has no effect here: "),
		})
	}
	return out
}
