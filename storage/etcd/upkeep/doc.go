// Package upkeep keeps an etcd member that Portolan owns in shape while it
// serves. Run looks at the member every few seconds, and each look (keeper.go)
// leads to at most one of these:
//
//   - compact.go drops revisions older than the retention;
//   - defrag.go gives the space of what was dropped back to the file system,
//     at a quiet moment, as the member answers nobody meanwhile;
//   - turn.go lets it be done to one member of a cluster at a time;
//   - quota.go makes room and lifts the alarm when the quota is used up;
//   - space.go warns before the file system is full, which ends etcd.
//
// It works through a client, so it does not matter in which process the member
// runs:
//
//	keeper, err := upkeep.New(upkeep.Target{Client: client, Endpoint: endpoint, DataDir: dir}, upkeep.Policy{}, logger)
//	registry.MustRegister(keeper)
//	err = keeper.Run(ctx)
//
// Of a cluster each member has a Keeper, next to it. What is for all of them is
// done by one (CompactKey), and what a member has to do for itself one after the
// other. None of that needs a leader of the Keepers, and a cluster of one has
// nobody to wait for.
//
// Use it for no etcd that others own: compaction and defragmentation are
// decisions of the owner.
package upkeep
