// Package proxyless generates the resources of gRPC clients and servers without a proxy.
//
// A client requests the one listener of its target, "host:port" of a service
// ([Listeners]). It names a route configuration, outbound|port||host ([Routes]), whose
// routes name the same clusters as a sidecar's ([Clusters], [Endpoints]). Packages route
// and cluster interpret VirtualServices and DestinationRules. This package translates the
// result for gRPC. It omits fields that gRPC does not know, since a client refuses a
// whole resource for one. See the gRPC proposals A27 (xDS), A28 (matches, weights), A31
// (timeouts), A32 (limits), A36 (servers), A42 (ring hash), A44 (retries) and A52 (load
// balancers).
//
// A client requests the clusters of its routes when it has the routes, and uses routes
// when it has their clusters. So [Routes.Announce] announces the clusters of its next
// routes beforehand, and Build announces clusters that may follow. A client waits many
// seconds for a name that a response lacks. So each type has a response that makes calls
// fail at once (Empty).
package proxyless
