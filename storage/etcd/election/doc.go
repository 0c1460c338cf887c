// Package election lets one of many processes at a time do a job: the leader of an
// election in etcd. Run campaigns for ever, and runs the job while this process leads:
//
//	election, err := election.New(client, election.Options{Name: "server", ID: host})
//	err = election.Run(ctx, func(ctx context.Context, leader *election.Leader) error {
//		_, err := leader.Txn(ctx).Then(clientv3.OpPut(key, value)).Commit()
//		return err
//	})
//
// No election can guarantee that two never lead at the same time: a process that is
// paused and resumes later still believes that it leads. So there are two lines of
// defence. The context of the job ends as soon as leadership is or may be lost
// (term.go): a local deadline ends it before the lease can expire in etcd. And every
// write is fenced (fence.go): it is part of a transaction that etcd refuses once the
// leader's key is gone. So no write of an old leader lands after a new one has begun.
//
// A candidate is a key under its own lease in ElectionPrefix, and the oldest key leads
// (go.etcd.io/etcd/client/v3/concurrency). Observe returns the leader.
package election
