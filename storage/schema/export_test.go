package schema

import "slices"

// UnknownMeshConfigFields returns the entries of the table of MeshConfig that name no field.
func UnknownMeshConfigFields() (out []string) {
	for _, path := range meshConfigFields().entries("") {
		if !slices.ContainsFunc(MeshConfigFields(), func(f MeshConfigField) bool { return f.Path == path }) {
			out = append(out, path)
		}
	}
	return out
}
