// Package routing is the arithmetic of VirtualServices and Gateways: the names in them
// made complete (New, NewGateway), the routes of a delegate as those of its root
// (VirtualService.Merge), which of several VirtualServices come first for a namespace (Row),
// and where a server of a Gateway and a VirtualService meet
// (ServerHost.Meet). It knows no mesh: package mesh keeps them in tables and asks for the
// proxies.
package routing
