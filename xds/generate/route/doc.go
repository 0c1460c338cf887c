// Package route generates route configurations.
//
// A sidecar has one for each port on which it speaks HTTP, named after the port
// (sidecar.go); carrier.go has its special ones. A gateway has one for each of its
// plaintext ports and one for each HTTPS server (gateway.go).
//
// Build makes the frame of a route configuration: its name, its options, and the
// virtual host for unknown hosts. Other virtual hosts are resources of package
// virtualhost, and Compose brings both together (compose.go). It copies the hosts in
// or, for a proxy that takes them by delta, tells the proxy to request them.
package route
