// Package export makes resources of the objects of the mesh, for other control planes that
// take them over xDS (Istio: MCP over xDS, the generator "api"). One object is one resource
// of the type that its kind is.
//
// An Export holds the resources of all kinds in one context, for all clients. The first
// client that needs a context takes it there, at the cost of the objects that differ.
// Nothing is held while there is no client.
package export
