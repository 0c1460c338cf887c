// Package route generates route configurations.
//
// A sidecar has one for each port on which it speaks HTTP, named after the port
// (sidecar.go). A gateway has one for each of its plaintext ports (gateway.go).
//
// What Build makes of one is its frame: its name, its options and what becomes of
// requests to unknown hosts. The hosts are resources of their own, which package
// virtualhost makes, and Compose brings both together (compose.go): it copies the
// hosts in, or, for a proxy that takes them one by one, has the proxy ask for them.
package route
