// Package proxyless generates what gRPC clients and servers take without a proxy.
//
// A client asks for the one listener of its target, "host:port" of a service
// ([Listeners]). That names a route configuration, outbound|port||host
// ([Routes]), whose routes name clusters as those of sidecars do ([Clusters],
// [Endpoints]). What a VirtualService or DestinationRule means is said in packages
// route and cluster; here it is put into what gRPC knows, and what it does not know
// is left out, since a client refuses a whole resource for it. See the gRPC
// proposals A27 (xDS), A28 (matches, weights), A31 (timeouts), A32 (limits), A36
// (servers), A42 (ring hash), A44 (retries) and A52 (load balancers).
//
// A client asks for the clusters of its routes when it has these, and uses routes
// when it has their clusters. It is told of the clusters of its next routes
// beforehand ([Routes.Announce]), and of those that may come after. It waits many
// seconds for a name that is missing in an answer, and each of the types has an
// answer that makes calls fail at once instead (Empty).
package proxyless
