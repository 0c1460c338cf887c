// Package clustersecret reads the secrets of clusters of Kubernetes that gateways may use.
//
// It reads only the namespaces that it is told, and keeps only the certificates, keys and
// revocation lists of secrets. They are sealed under a key of the process and are in memory
// alone: they are no objects of the mesh, so nothing stores, exports or shows them.
//
//	New -> Run (Follow of package cluster for each namespace) -> Set, as of any moment
package clustersecret
