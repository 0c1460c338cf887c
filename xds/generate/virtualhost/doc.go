// Package virtualhost generates virtual hosts, each one a resource of its own.
//
// A sidecar has one for every service that a port's egress listener carries. Its routes
// are from the VirtualService that applies, else one route to the service (sidecar.go).
// A gateway has one for every name in which a server and the VirtualServices bound to
// its gateway overlap (gateway.go). The name of a resource joins the route
// configuration and the host, 80/web.example.com:80. Package route puts the hosts into
// their route configurations, or has proxies take them by delta.
//
// No host reads the other hosts. If several claim a domain, rows that only these have
// in common decide: the hosts that have an address, and those that a pattern covers.
//
// A translator, which knows the port and the gateway, translates a VirtualService:
// which routes apply (translator.go), where they go (destination.go), and what they do
// to requests (action.go).
package virtualhost
