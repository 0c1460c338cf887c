package etcd

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// InstanceKey holds the id of the store: a uuid, written once when the store is
// first used and never changed. It tells one store from another that happens to
// have the same cluster id, and goes with a backup.
const InstanceKey = MetaPrefix + "instance"

// Instance says which store answered, and where it stood.
type Instance struct {
	// Cluster is the id of the etcd cluster.
	Cluster uint64
	// ID is the value of InstanceKey, empty where there is none.
	ID string
	// Revision is that of the store when it answered: a quorum read, which shows
	// every write that was acknowledged before it began.
	Revision int64
	// Format is what it said of the values in it.
	Format Format
}

// ReadInstance asks the store behind a client who it is, for its revision, and
// for its format.
func ReadInstance(ctx context.Context, client *clientv3.Client) (Instance, error) {
	r, err := client.Txn(ctx).Then(clientv3.OpGet(InstanceKey), clientv3.OpGet(FormatKey)).Commit()
	if err != nil {
		return Instance{}, fmt.Errorf("read %s: %w", InstanceKey, err)
	}
	out := Instance{Cluster: r.Header.ClusterId, Revision: r.Header.Revision}
	for _, kv := range r.Responses[0].GetResponseRange().Kvs {
		out.ID = string(kv.Value)
	}
	for _, kv := range r.Responses[1].GetResponseRange().Kvs {
		out.Format = decodeFormat(kv)
	}
	return out, nil
}

// EnsureInstance is ReadInstance that gives a store without an id one. Where
// several do so at once, all return the id of the first. If the id cannot be
// written, what was read is returned beside the error.
func EnsureInstance(ctx context.Context, client *clientv3.Client) (Instance, error) {
	found, err := ReadInstance(ctx, client)
	if err != nil || found.ID != "" {
		return found, err
	}
	id := uuid.NewString()
	r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(InstanceKey), "=", 0)).
		Then(clientv3.OpPut(InstanceKey, id)).Else(clientv3.OpGet(InstanceKey)).Commit()
	if err != nil {
		return found, fmt.Errorf("write %s: %w", InstanceKey, err)
	}
	if !r.Succeeded {
		id = string(r.Responses[0].GetResponseRange().Kvs[0].Value)
	}
	return Instance{Cluster: r.Header.ClusterId, ID: id, Revision: r.Header.Revision, Format: found.Format}, nil
}
