// Package access has the specs of the objects that say who may come in, and what for. Each
// is a Go struct with JSON tags, whose schema is in package schema.
package access
