// Package filter makes the HTTP connection managers of all listeners: of sidecars,
// outbound and inbound, of gateways, and of gRPC clients and servers.
//
// [Manager] makes the connection manager of an Envoy, and [HTTP] the HTTP filters of any
// listener, in order. A new HTTP filter is one line of HTTP. Its per-route configuration
// comes from envoy.RouteOptions, which package virtualhost fills.
package filter
