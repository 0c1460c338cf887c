// Package listener generates listeners for proxies that capture no traffic:
// each is bound to the address and port that applications connect to.
//
// A gateway has one for each address and port of its plaintext servers
// (gateway.go). A sidecar has one on the loopback address for every port of the
// services that it sees, those of its egress listeners where its Sidecar names
// ports (outbound.go), and those of its Sidecar's ingress (inbound.go). Beside a
// proxy that says DNS_CAPTURE applications find services by the addresses that
// these were given, so it has one for each of these and each port of the service
// (assigned.go): TCP services of one port do not meet there. HTTP is
// routed by a route configuration, the listener's child, except inbound, where
// the one route there is stands in the listener.
package listener
