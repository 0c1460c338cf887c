// Package refmesh builds the reference mesh for measurements of the cost of a push. Its
// services have a virtual address, an HTTP and a TCP port and five endpoints each. Half of them
// have a VirtualService of ten routes, half a DestinationRule of two subsets. They are spread
// over twenty namespaces.
//
// A Mesh says how large it is and what its Sidecars import. Objects returns all of it, and
// Proxies describes its sidecars. A Change rewrites one object, with a mark by which a test
// recognises the change in responses:
//
//	mesh := refmesh.Mesh{Services: 1000}
//	change := mesh.ChangeEndpoint(refmesh.Target, 1)
//	bytes.Contains(response, change.Mark)
package refmesh
