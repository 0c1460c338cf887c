// Package listener generates listeners.
//
// A gateway has one for each address and port of its plaintext servers
// (gateway.go).
//
// Beside a sidecar that captures traffic clients know nothing of it. What they open
// is redirected to virtualOutbound, which hands it to the listener of the address
// that they mean (captured.go): services that speak HTTP share one at every address
// of their port, and are told apart by their hosts; any other has its own addresses,
// so that services of one port do not meet there; one without an address has all
// that nobody else has. Where no protocol is declared, HTTP is looked for. What
// comes in is redirected to virtualInbound, which has filter chains for each port
// that the workload serves (virtualinbound.go).
//
// A sidecar that captures nothing has a listener on the loopback address for every
// port of the services that it sees, those of its egress listeners where its Sidecar
// names ports (outbound.go), and those of its Sidecar's ingress (inbound.go). Where
// it says DNS_CAPTURE applications find services by the addresses that these were
// given, so it has one for each of these and each port of the service
// (assigned.go).
//
// HTTP is routed by a route configuration, the listener's child, except inbound,
// where the one route there is stands in the listener. What goes out is shared by
// all proxies of a class; what comes in is the workload's own (Inbound). A listener
// is built from what it needs: that a port speaks HTTP is known from one service
// that does, and no listener depends on a route.
package listener
