package etcd

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc/metadata"
)

// Within returns a client that puts a prefix before every key: a Store of it is a store of its
// own, with all its trees, in the same etcd and at the same revisions. It fences what client
// fences. Do not close it. It tells nothing about its connection, so a Store of it that is cut
// off from etcd waits for its deadline before it says so.
func Within(client *clientv3.Client, prefix string) *clientv3.Client {
	prefix = strings.TrimSuffix(prefix, "/") // keys begin with a slash
	out := clientv3.NewCtxClient(client.Ctx())
	out.KV = namespace.NewKV(client.KV, prefix)
	out.Watcher = namespace.NewWatcher(apart{client.Watcher, prefix}, prefix)
	out.Lease = namespace.NewLease(client.Lease, prefix)
	return out
}

// apart puts the watches of a store on a stream of their own. etcd answers a request for progress
// only when it has reached the begin of every watch of the stream.
type apart struct {
	clientv3.Watcher
	name string
}

// Watch implements clientv3.Watcher.
func (a apart) Watch(ctx context.Context, key string, o ...clientv3.OpOption) clientv3.WatchChan {
	return a.Watcher.Watch(a.own(ctx), key, o...)
}

// RequestProgress implements clientv3.Watcher.
func (a apart) RequestProgress(ctx context.Context) error {
	return a.Watcher.RequestProgress(a.own(ctx))
}

// own returns a context by whose metadata etcd's client finds the stream.
func (a apart) own(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "portolan-store", a.name)
}
