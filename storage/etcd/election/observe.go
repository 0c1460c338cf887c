package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
)

// ErrNoLeader says that nobody leads at present.
var ErrNoLeader = errors.New("there is no leader")

// A Holder describes the leader of an election.
type Holder struct {
	// ID is the ID in the leader's Options.
	ID string
	// Since is when its term began, by its own clock. It is zero for a moment at the
	// beginning of a term.
	Since time.Time
	// Term is the leader's Leader.Term.
	Term int64
}

// holding is the value of a candidate's key.
type holding struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since,omitzero"`
}

// prefix is the prefix of the candidates' keys, without the slash at its end.
func (e *Election) prefix() string { return etcd.ElectionPrefix + e.o.Name }

// Leader tells who leads this election; see Observe.
func (e *Election) Leader(ctx context.Context) (Holder, error) {
	return Observe(ctx, e.client, e.o.Name)
}

// Observe returns the leader of an election without taking part; ErrNoLeader if there
// is none. It still returns a leader that died until its lease expires.
func Observe(ctx context.Context, client clientv3.KV, name string) (Holder, error) {
	answer, err := client.Get(ctx, etcd.ElectionPrefix+name+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return Holder{}, fmt.Errorf("leader of %s: %w", name, err)
	}
	if len(answer.Kvs) == 0 {
		return Holder{}, fmt.Errorf("leader of %s: %w", name, ErrNoLeader)
	}
	kv := answer.Kvs[0]
	var value holding
	if err := json.Unmarshal(kv.Value, &value); err != nil {
		return Holder{}, fmt.Errorf("leader of %s: %s: %w", name, kv.Key, err)
	}
	return Holder{ID: value.ID, Since: value.Since, Term: kv.CreateRevision}, nil
}
