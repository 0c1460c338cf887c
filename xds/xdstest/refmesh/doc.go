// Package refmesh builds the reference mesh, by which the cost of a push is
// measured and compared: services with a virtual address, an HTTP and a TCP port
// and five endpoints each, half of them with a VirtualService of ten routes, half
// with a DestinationRule of two subsets, spread over twenty namespaces.
//
// A Mesh says how large it is and what its Sidecars import; Objects is all of it,
// and Proxy who its sidecars are. A Change is one object written anew, with a mark
// by which it is recognised in whatever a proxy is sent because of it:
//
//	mesh := refmesh.Mesh{Services: 1000}
//	change := mesh.ChangeEndpoint(refmesh.Target, 1)
//	bytes.Contains(response, change.Mark)
package refmesh
