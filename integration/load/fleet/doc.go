// Package fleet simulates many proxies against a server of ADS, in either variant
// of the protocol. Each has a connection of its own, asks as Envoy does (for all
// clusters and listeners, for the endpoints and routes that these name, and for
// all virtual hosts once a route configuration says that they come by
// themselves), and acknowledges everything.
//
// A fleet is cheap, since it shares the machine with the server that it measures.
// Responses are not decoded but scanned (wire.go): for their names, and in
// clusters, listeners and routes for what they make a proxy ask for. What is
// scanned once is known for every proxy that is sent the same (digest.go), and so
// is what they ask for next (holding.go).
//
//	f := fleet.New(fleet.Options{Address: address, Proxies: 200, Variant: protocol.Delta, Node: node})
//	go f.Run(ctx)
//	sync, err := f.AwaitSync(ctx, time.Second)
//	receipt := f.Expect(fleet.Expectation{Mark: mark})
//	write(change)
//	times, err := receipt.Await(ctx)
package fleet
