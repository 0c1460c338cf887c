// Package backup makes and reads snapshots of a whole store: files that hold
// etcd's database as of one revision and then the SHA-256 of it, as etcdctl and
// etcdutl write and read them too.
//
// Take begins to read one from a store that serves; Write puts what Take, or
// the API, gives into a file, which appears under its name whole and verified
// or not at all. Inspect says what is in a file, without any store. Scheduler
// makes one every so often and keeps the newest. What restores one is
// member.Restore, since it makes the data directory of a member.
//
//	body, revision, err := backup.Take(ctx, client)
//	summary, err := backup.Write(body, "mesh.snapshot", backup.WriteOptions{MinRevision: revision})
package backup
