package etcd

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// InstanceKey holds the id of the store: a uuid, written at the first use of the store
// and never changed. It distinguishes two stores that have the same cluster id, and is
// part of a backup.
const InstanceKey = MetaPrefix + "instance"

// Instance identifies a store, and tells its revision.
type Instance struct {
	// Cluster is the id of the etcd cluster.
	Cluster uint64
	// ID is the value of InstanceKey, empty where there is none.
	ID string
	// Revision is the revision of the store when it answered. The read is linearizable,
	// so it shows every write that was acknowledged before it began.
	Revision int64
	// Format is the format of the store.
	Format Format
}

// ReadInstance reads the identity, the revision and the format of a store.
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
		out.Format = DecodeFormat(kv)
	}
	return out, nil
}

// EnsureInstance is like ReadInstance, and writes an id to a store that has none. Where
// several do so at once, all return the id of the first. If it cannot write the id, it
// returns what it read beside the error.
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
