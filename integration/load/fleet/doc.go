// Package fleet simulates many proxies against a server of ADS, in either variant of the
// protocol. Each has a connection of its own, and acknowledges everything. It subscribes as
// Envoy does: to all clusters and listeners, to the endpoints, routes, secrets and configurations
// of filters that these name, and to all virtual hosts once a route configuration uses VHDS.
//
// A fleet is cheap, since it shares the machine with the server that it measures. It does not
// decode responses but scans them (wire.go): for names, and in clusters, listeners and routes
// for what a proxy requests because of them. Proxies that receive the same share the result
// (digest.go), and also what they request next (holding.go).
//
//	f := fleet.New(fleet.Options{Address: address, Proxies: 200, Variant: protocol.Delta, Node: node})
//	go f.Run(ctx)
//	sync, err := f.AwaitSync(ctx, time.Second)
//	receipt := f.Expect(fleet.Expectation{Mark: mark})
//	write(change)
//	times, err := receipt.Await(ctx)
package fleet
