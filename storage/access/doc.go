// Package access has the specs of the objects that say who may come in, and who may do what.
// Each is a Go struct with JSON tags, whose schema is in package schema. They are objects of
// the group portolan.io. What is in the mesh's root namespace is for the whole mesh.
package access

// Group is the group of the kinds.
const Group = "portolan.io"
