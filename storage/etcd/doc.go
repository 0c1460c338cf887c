// Package etcd keeps configuration in etcd. A Store is a storage.ConfigStore, a
// storage.Batcher and a storage.Historian over any *clientv3.Client: one in
// process, one on a unix socket, one over TCP.
//
// Keys lie in two trees, MeshPrefix and SidePrefix (keys.go). A value is an
// envelope: a protobuf message of ours behind a short magic, with the spec in
// it (Encode, Decode). The resource version of an object is the mod revision
// of its key, as a decimal string.
//
// Every mutation is one transaction: If the keys still have the revisions that
// were read Then put or delete. Create, Update and Delete are Apply of one
// operation: Apply reads the targets at one revision (read) or remembers them
// (recent), decides what is to become of each (plan), makes the transaction
// (newMutation), and sees it land (land), also where answers are lost: a write
// id, in every value that it puts and as the key of its record of history, tells
// it by its work.
//
// With Options.Addresses that transaction also gives hosts of ServiceEntries that
// have no address one, or takes it back (addresses.go). What was written by a
// store without them is made good by SettleAddresses.
//
// MVCC is the ledger: GetResourceAtVersion reads at an old revision. History is
// explicit records, one for each batch (record.go), which compaction does not
// touch: History, Records and At read them with what there is as of one
// revision and leave the telling to package history; Prune removes them and
// notes in floors how far back they are whole.
//
//	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot()})
//	version, err := store.Create(ctx, object)
//
// Whoever wants to follow the store watches MeshPrefix with the client itself
// and reads what arrives by ParseConfigKey and Decode; cache/mirror does.
package etcd
