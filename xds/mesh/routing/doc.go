// Package routing computes with VirtualServices and Gateways. New and NewGateway complete
// the names in them, and VirtualService.Merge gives a root the routes of its delegates.
// Row orders the VirtualServices of a host for a namespace. ServerHost.Overlap intersects a
// host of a Gateway's server with one of a VirtualService. Server.UsesTCPRoute and
// Server.NameMatches decide which tcp and tls routes a server has. The package does not
// know the mesh: package mesh keeps the objects in tables and queries them for proxies.
package routing
