// Package peercert is the certificates by which the members of an embedded store know each
// other, where nobody names files of others.
//
// A store has an authority of its own, which signs for its members and for nobody else:
// whoever has a certificate of it can read and write the store. The first member makes it,
// and each that joins gets it with the place that was made for it. So every member renews
// its own certificate.
//
//	dir := peercert.In(dataDir)
//	keeper, err := dir.Open("10.0.0.1")
//	...
//	config := keeper.Files() // of a member.Cluster
//	go keeper.Run(ctx, logger)
//
// The authority of the mesh is another: no certificate of a workload is good for the store.
package peercert
