// Package relay serves xDS to the proxies of one machine, and gets it from the servers of the
// mesh. It does not understand what it passes on: resources are bytes to it.
//
// For each stream of a client there is one stream to a server. When that ends, the client's
// stream stays, and the relay opens another to any server:
//
//	session.run   one goroutine of a client's stream: joins the client, the book and an upstream
//	connector     finds servers in random order, with back-off
//	book          what the client asked for, has, and has not answered yet: [deltaBook], [worldBook]
//	keptStream    stands in for a server while none answers, from the last good configuration
//	Store         keeps the last good configuration on disk
//
// Only the book knows the protocol. It restates a client to a new server as the client would do
// itself after a reconnect:
// https://www.envoyproxy.io/docs/envoy/v1.40.0/api-docs/xds_protocol
package relay
