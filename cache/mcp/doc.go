// Package mcp is the read-only cache of the configuration of another control plane, which
// serves its objects over xDS (Istio: MCP over xDS, the generator "api"): another Portolan,
// or istiod.
//
//	stream (delta, or state of the world) -> decode -> Cache.take -> Feed.Publish
//
// A type of resources is a kind: "networking.istio.io/v1/ServiceEntry". A resource is an
// istio.mcp.v1alpha1.Resource, whose metadata have the name "namespace/name", the version
// and the time of creation. Each answer is one snapshot, but for those at the beginning of
// a stream: they are one snapshot together, once the peer has answered for each kind. So
// a peer that is another one than before, or has not read its own store yet, takes nothing
// away by halves.
//
// What is at fault takes nothing away. An object that cannot be decoded, or is not valid,
// keeps its last good content, and Cache.Problems has it. An answer with a resource that
// cannot be decoded is refused (NACK), and its other resources are taken. While the peer is
// away its last objects are served, and Cache.Degraded says so.
package mcp
