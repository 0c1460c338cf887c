// Package route generates route configurations.
//
// A sidecar has one for each port on which it speaks HTTP, named after the
// port: a virtual host for every service that the port's egress listener
// carries, with the routes of the VirtualService that applies to it, else one
// route to the service (sidecar.go). A gateway has one for each of its plaintext
// ports: a virtual host for every name in which its servers and the
// VirtualServices bound to them meet (gateway.go).
//
// What a VirtualService says is translated once for both, by a translator that
// knows the port and the gateway in question: which routes apply (virtual.go),
// where they go (destination.go) and what is done to requests (action.go).
package route
