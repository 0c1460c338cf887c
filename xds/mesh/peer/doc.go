// Package peer says how workloads take connections, in plaintext or by mutual TLS, as
// PeerAuthentications decide. Policies are those of one namespace. A Scope adds those of
// the root namespace, and answers for a workload and a port of it.
//
// The rules are Istio's (ComposePeerAuthentication). A policy with a selector is for the
// workloads that it selects in its own namespace. One without is for its namespace, or for
// the mesh if that is the root namespace. The nearest level that sets a mode decides, and of
// one level the oldest policy.
package peer
