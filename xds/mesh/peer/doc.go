// Package peer says how workloads take connections, in plaintext or by mutual TLS, as
// PeerAuthentications decide. Policies are those of one namespace. A Scope adds those of
// the root namespace, and answers for a workload and a port of it.
//
// The rules are Istio's (ComposePeerAuthentication). A policy of the root namespace
// without a selector is for the mesh, one of another namespace for the namespace, and one
// with a selector for the workloads of its own namespace that it selects. The nearest
// level that sets a mode decides, and of one level the oldest policy.
package peer
