// Package filter decides the filters of all listeners: of sidecars, outbound and inbound, of
// gateways, and of gRPC clients and servers.
//
// [HTTP] returns the HTTP filters of a listener and [Network] the network filters of a filter
// chain, each in order: a new filter is one line there. [Manager] makes the connection manager of
// an Envoy. The per-route configuration of an HTTP filter comes from envoy.RouteOptions, which
// package virtualhost fills.
package filter
