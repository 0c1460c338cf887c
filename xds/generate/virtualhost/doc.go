// Package virtualhost generates virtual hosts, each one a resource of its own.
//
// A sidecar has one for every service that a port's egress listener carries, with
// the routes of the VirtualService that applies to it, else one route to the
// service (sidecar.go). A gateway has one for every name in which a server and the
// VirtualServices bound to its gateway meet (gateway.go). Its name is that of its
// route configuration and its own, 80/web.example.com:80; package route puts the
// hosts into their route configurations, or has proxies take them one by one.
//
// No host is built from a look at the others. Where several claim a domain, who
// yields to whom is read in rows that only these have in common: the hosts that
// have an address, those that a pattern covers.
//
// What a VirtualService says is translated by a translator that knows the port and
// the gateway in question: which routes apply (translator.go), where they go
// (destination.go) and what is done to requests (action.go).
package virtualhost
