// Package desired knows what each proxy should have, and takes it from one context to
// the next at the cost of what changed.
//
// Proxies of one class should have the same resources. They are the members of one
// Group, which is advanced once for all of them. A Member is one proxy's view: the
// snapshot of its group, with the resources of the proxy's own workload inserted.
//
// mesh.Diff of two contexts is the change. A group builds the names that a generator
// calls affected, and the names that were built from a changed row, which package memo
// knows. A resource that cannot be built keeps its last good form, is reported as a
// Failure, and is built again with the next change.
//
//	New(types).Join(proxy) -> Member.Advance -> Group.advance -> memo.Build -> generate.Build
//	                                         -> workload.advance -> generate.Build
package desired
