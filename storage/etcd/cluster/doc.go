// Package cluster looks at the members of an etcd cluster, and changes them.
//
// A Roster keeps a connection to each member. Look asks every member for its status, and
// those that answer for the list of members, so it also describes a cluster without a
// quorum:
//
//	r := cluster.New(dial, "https://10.0.0.1:2379")
//	defer r.Close()
//	view, err := r.Look(ctx)
//	for _, m := range view.Members { ... }
//
// Add adds a member as a learner, which has no vote; Promote makes it a voter once it is
// in step; Remove removes one. Each refuses a change that would cost the cluster its
// quorum, and says what to do instead. A member is named by its name, or, before it has
// first started, by its id or its peer URL.
package cluster
