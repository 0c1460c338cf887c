// Package sidecar is the arithmetic of Sidecars: which of them applies to a workload
// (Select), and what the egress listeners of a Scope import. It knows no mesh: package mesh
// keeps the Sidecars in a table and asks for the proxies.
package sidecar
