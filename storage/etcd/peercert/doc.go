// Package peercert manages the certificates that the members of an embedded store present
// to each other, if the operator names no files.
//
// A store has its own authority, which signs for its members and for nobody else: every
// holder of such a certificate can read and write the store. The first member makes the
// authority, and each joining member gets it with its place in the cluster. So every member
// renews its own certificate.
//
//	dir := peercert.In(dataDir)
//	keeper, err := dir.Open("10.0.0.1")
//	...
//	config := keeper.Files() // of a member.Cluster
//	go keeper.Run(ctx, logger)
//
// The authority of the mesh is another one: no certificate of a workload is valid for
// the store.
package peercert
