// Package sidecar computes with Sidecars: which one applies to a workload (Select), and
// what the egress listeners of a Scope import. It does not know the mesh: package mesh
// keeps the Sidecars in a table and queries them for proxies.
package sidecar
