// Package mcp is the read-only cache of the configuration of another control plane,
// which serves its objects over xDS (Istio: MCP over xDS, the generator "api"). The peer
// is another Portolan, or istiod.
//
//	stream (delta, or state of the world) -> decode -> Cache.apply -> Feed.Publish
//
// A type of resources is a kind: "networking.istio.io/v1/ServiceEntry". A resource is an
// istio.mcp.v1alpha1.Resource, whose metadata have the name "namespace/name", the
// version and the time of creation. Each response is one snapshot. Only the responses at
// the beginning of a stream become one snapshot together, once the peer has answered for
// each kind. So a peer that was replaced, or has not read its own store yet, cannot take
// away a part of the objects.
//
// A fault removes nothing. An object that cannot be decoded, or is not valid, keeps its
// last good content, and Cache.Problems has it. A response with an undecodable resource
// is refused (NACK), but its other resources are accepted. While the peer is away its
// last objects are served, and Cache.Degraded says so.
package mcp
