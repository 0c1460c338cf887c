// Package access has the specs of the objects that say who may connect and what each user
// may do. Each is a Go struct with JSON tags, whose schema is in package schema. They are
// objects of the group portolan.io. An object in the mesh's root namespace applies to the
// whole mesh.
package access

// Group is the group of the kinds.
const Group = "portolan.io"
