// Package routing is the arithmetic of VirtualServices and Gateways. New and NewGateway
// complete the names in them, and VirtualService.Merge gives a root the routes of its
// delegates. Row orders the VirtualServices of a host for a namespace. ServerHost.Meet is
// what a host of a Gateway's server and one of a VirtualService have in common, and
// Server.Takes and Server.NameMatches are which tcp and tls routes a server has. The package
// knows no mesh: package mesh keeps them in tables and asks for the proxies.
package routing
