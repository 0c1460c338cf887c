// Package backup makes and reads snapshots of a whole store: files with etcd's database
// as of one revision and then its SHA-256, in the format of etcdctl and etcdutl.
//
// Take begins to read a snapshot from a store that serves. Write puts the snapshot of
// Take, or of the API, into a file, which appears under its name whole and verified or
// not at all. Inspect describes the content of a file, without any store. Scheduler
// makes a snapshot every so often and keeps the newest. member.Restore restores one,
// since it makes the data directory of a member.
//
//	body, revision, err := backup.Take(ctx, client)
//	summary, err := backup.Write(body, "mesh.snapshot", backup.WriteOptions{MinRevision: revision})
package backup
