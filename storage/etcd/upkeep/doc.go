// Package upkeep maintains an etcd member of Portolan's while it serves. Run looks at
// the member every few seconds, and each look (keeper.go) leads to at most one of
// these:
//
//   - compact.go drops revisions older than the retention;
//   - defrag.go gives freed space back to the file system, at a quiet moment, as the
//     member answers nobody meanwhile;
//   - turn.go has one member of a cluster defragmented at a time;
//   - quota.go makes room and lifts the alarm when the quota is used up;
//   - space.go warns before the file system is full, which ends etcd.
//
// It works through a client, so it does not matter in which process the member runs:
//
//	keeper, err := upkeep.New(upkeep.Target{Client: client, Endpoint: endpoint, DataDir: dir}, upkeep.Policy{}, logger)
//	registry.MustRegister(keeper)
//	err = keeper.Run(ctx)
//
// Each member of a cluster has a Keeper next to it. One of the Keepers does the work
// that concerns all members (CompactKey). The Keepers work on their own members one
// after the other. That needs no leader among the Keepers, and in a cluster of one there
// is no wait.
//
// Do not use it on an etcd that others own: only the owner decides about compaction and
// defragmentation.
package upkeep
