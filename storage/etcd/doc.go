// Package etcd keeps configuration in etcd. A Store is a storage.ConfigStore, a
// storage.Leaser and a storage.Historian over any *clientv3.Client: one in
// process, one on a unix socket, one over TCP.
//
// Keys lie in two trees, MeshPrefix and SidePrefix (keys.go). A value is an envelope: a
// protobuf message behind four magic bytes (package envelope); that of an object holds
// its spec (Encode, Decode). The resource version of an object is the mod revision of
// its key, as a decimal string. Range reads a tree page by page (pages.go), and
// MeshTrees lists the trees whose values can be decoded (trees.go).
//
// Every mutation is one transaction: If the keys still have the revisions that were
// read Then put or delete. Create, Update and Delete are Apply of one operation. Apply
// reads the targets at one revision (read) or remembers them (recent), plans a step for
// each (plan), makes the transaction (newMutation), and sends it until its outcome is
// known (land). Where an answer is lost, a write id identifies the transaction: it is in
// every object that the transaction puts, and is the key of its record of history.
//
// With Options.Addresses the transaction also gives an address to each host of a
// ServiceEntry without one, or takes it back (addresses.go). SettleAddresses repairs what
// a store without that option wrote.
//
// An object may be under a lease of etcd (lease.go), which deletes it when it ends. RecordLeases
// writes the records of such deletions.
//
// MVCC is the ledger: GetResourceAtVersion reads at an old revision. History is explicit
// records, one for each batch (record.go), which compaction leaves alone. History,
// Records and At read them and the objects as of one revision, and package history
// combines the two. Prune deletes records, and raises floors that say how far back they
// are complete.
//
// Within puts a store of other kinds into the same etcd (within.go).
//
//	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot()})
//	version, err := store.Create(ctx, object)
//
// cache/mirror follows the store: it watches MeshPrefix with the client itself.
package etcd
