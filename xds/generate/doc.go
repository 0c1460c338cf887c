// Package generate is the contract of the generators. Each makes the Envoy resources of
// one type, in its own package below this one; package catalogue lists them in the order
// in which their types are sent.
//
// A Generator reads only a mesh.View, which records what a resource was built from. Some
// types need more, and have an interface for it: Emptier, Announcer, Composer. As finds
// these, since a generator may be wrapped: ResourceType.Patched adds patches to all
// generators of a type. A Builder builds the resources of one proxy, for explanations and
// tests.
package generate
