// Package generate is the contract of the generators. Each makes the Envoy
// resources of one type, in a package of its own below this one; package catalogue
// lists them in the order in which their types are sent.
//
// A Generator reads nothing but a mesh.View, so it is known what a resource was
// built from. What only some types need is an interface beside it: Emptier,
// Announcer, Composer. As finds it, since a generator may be wrapped:
// ResourceType.Patched adds patches to all generators of a type. A Builder builds what
// one proxy has, for explanations and tests.
package generate
