package member

import (
	"context"
	"expvar"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// startPoll is how often the start of a member is checked.
const startPoll = 10 * time.Millisecond

// campaign makes a member that is alone in its cluster and has no leader lead at once.
// Otherwise it would wait up to a second for other candidates. A member that has yet to
// read its members from its log ignores the call, and the caller calls again.
func campaign(ctx context.Context, etcd *embed.Etcd) {
	if etcd.Server.Leader() != 0 || len(etcd.Server.Cluster().Members()) != 1 || !hasApplied(etcd) {
		return
	}
	self := uint64(etcd.Server.MemberID())
	// An error means that the member ends. Whoever waits for it sees that too.
	_ = etcd.Server.Process(ctx, &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: &self, From: &self})
}

// hasApplied says whether raft knows that its whole log is applied. An earlier campaign
// searches the log for changes of members; etcd may have compacted part of it, and then
// raft panics. etcd publishes raft's state for the member that this process started last; a
// server has only one.
// https://github.com/etcd-io/etcd/issues/9079
func hasApplied(etcd *embed.Etcd) bool {
	if etcd.Server.AppliedIndex() < etcd.Server.CommittedIndex() {
		return false
	}
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false
	}
	status, ok := published.Value().(raft.Status)
	return ok && status.Applied >= status.GetCommit()
}
