package election

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
)

// ErrNotLeader says that this process does not lead any more, and that nothing
// was written. It is a storage.ErrReadOnly.
var ErrNotLeader = fmt.Errorf("%w: this is not the leader any more", storage.ErrReadOnly)

// A Leader writes on behalf of the leader, for one term. It may be used by several
// goroutines, and after its term, when every write is an ErrNotLeader.
type Leader struct {
	client *clientv3.Client
	fence  clientv3.Cmp
	term   int64
}

func newLeader(t *term, lose context.CancelCauseFunc) *Leader {
	l := &Leader{
		fence: clientv3.Compare(clientv3.CreateRevision(t.election.Key()), "=", t.election.Rev()),
		term:  t.election.Rev(),
	}
	lost := func() error {
		err := fmt.Errorf("%w: its term %d of %s has ended", ErrNotLeader, l.term, t.o.Name)
		lose(err)
		return err
	}
	l.client = clientv3.NewCtxClient(t.own)
	l.client.KV = fencedKV{KV: t.client.KV, fence: l.fence, lost: lost}
	l.client.Lease, l.client.Watcher = t.client.Lease, t.client.Watcher
	return l
}

// Term is a number that is higher in each later term of the election.
func (l *Leader) Term() int64 { return l.term }

// Client works like the client of the election, but fences all its writes. Once the term has
// ended a transaction has no effect and returns ErrNotLeader, and the context of the job
// ends. It holds one operation less than etcd's --max-txn-ops. Compact is not fenced, as it takes no conditions. Do not close the client. A store
// made of it writes only while this process leads.
func (l *Leader) Client() *clientv3.Client { return l.client }
