// Package cluster looks at the members of an etcd cluster, and changes them.
//
// A Roster keeps a connection of its own to each member. Look asks every one
// how it is, and those that answer who the members are, so that it tells of a
// cluster without a quorum too:
//
//	r := cluster.New(dial, "https://10.0.0.1:2379")
//	defer r.Close()
//	view, err := r.Look(ctx)
//	for _, m := range view.Members { ... }
//
// Add takes a member in as a learner, which votes on nothing; Promote makes it
// a voter once it is in step; Remove takes one out. Each refuses what would
// cost the cluster its quorum, and says what to do instead. A member goes by
// its name, or, before it has first started, by its id or its peer URL.
package cluster
