// Package export serves the objects of the mesh as resources, for other control planes that
// subscribe over xDS (Istio: MCP over xDS, the generator "api"). One object is one resource;
// its kind is the type.
//
// An Export holds the resources of all kinds for one context, shared by all clients. The first
// client that needs a newer context updates them, at the cost of the objects that differ. An
// Export without clients holds nothing.
package export
