// Package listener generates listeners.
//
// A gateway has one for each address and port of its servers (gateway.go). A server that
// terminates TLS has a filter chain if its certificate is present (gatewaytls.go). A TCP
// server sends connections by its tcp route. A server that passes TLS on has a filter
// chain for each match of its tls routes, or for each service (gatewaystreams.go).
// Without a filter chain there is no listener.
//
// A sidecar that captures traffic is invisible to clients. Their connections are
// redirected to virtualOutbound, which hands each to the listener of its original
// destination (virtualoutbound.go). Services that speak HTTP share one listener at all addresses
// of their port, and hosts tell them apart. Any other service has listeners at its own
// addresses, so that services of one port do not collide. A headless service has one at
// the address of each workload; another service without an address gets all connections
// that no other service claims. If no protocol is declared, the
// listener detects HTTP. Incoming connections are redirected to virtualInbound, which has
// filter chains for each port that the workload serves (virtualinbound.go).
//
// A sidecar that captures nothing has a listener on the loopback address for every port
// of the services that it sees. If its Sidecar names ports, it has listeners for those
// egress listeners instead (outbound.go), and for its ingress (inbound.go). With
// DNS_CAPTURE, applications find services by assigned addresses, so it has a listener for
// each of these and each port of the service (assigned.go).
//
// A route configuration, which the listener needs, routes HTTP. Only inbound listeners
// contain their one route. All proxies of a class share outbound listeners; inbound ones
// belong to the workload alone (Inbound). A listener reads as few rows as it can: one
// service with HTTP shows that a port speaks HTTP, and no listener depends on a route.
package listener
