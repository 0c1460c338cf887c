// Package election has one of many processes do a job at a time: that which
// leads an election in etcd. Run campaigns for ever, and runs the job for as
// long as this process leads:
//
//	election, err := election.New(client, election.Options{Name: "server", ID: host})
//	err = election.Run(ctx, func(ctx context.Context, leader *election.Leader) error {
//		_, err := leader.Txn(ctx).Then(clientv3.OpPut(key, value)).Commit()
//		return err
//	})
//
// That two never lead at the same time cannot be had: a process that is stopped
// and goes on later has led in its own eyes all the while. So there are two
// lines of defence. The context of the job ends as soon as leadership is lost
// or may be (term.go), by a local deadline at the latest, which comes before the
// lease can expire in etcd. And every write is fenced (fence.go): it is part of
// a transaction that etcd refuses once the leader's key is gone, so that nothing
// of an old leader lands after a new one has begun.
//
// A candidate is a key under its own lease in ElectionPrefix, and the oldest key
// leads (go.etcd.io/etcd/client/v3/concurrency). Observe tells who that is.
package election
