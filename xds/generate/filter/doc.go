// Package filter owns the HTTP connection manager of every listener: of sidecars,
// outbound and inbound, of gateways, and of gRPC clients and servers.
//
// [Manager] makes the connection manager of an Envoy, and [HTTP] the HTTP filters of
// any listener, in their order. A new HTTP filter is one line of HTTP. Its
// configuration per route comes from envoy.RouteOptions, which package virtualhost
// fills.
package filter
