package etcd

import (
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// Within returns a client that puts a prefix before every key: a Store of it is a store of its
// own, with all its trees, in the same etcd and at the same revisions. It fences what client
// fences. Do not close it. It tells nothing about its connection, so a Store of it that is cut
// off from etcd waits for its deadline before it says so.
func Within(client *clientv3.Client, prefix string) *clientv3.Client {
	prefix = strings.TrimSuffix(prefix, "/") // keys begin with a slash
	out := clientv3.NewCtxClient(client.Ctx())
	out.KV = namespace.NewKV(client.KV, prefix)
	out.Watcher = namespace.NewWatcher(client.Watcher, prefix)
	out.Lease = namespace.NewLease(client.Lease, prefix)
	return out
}
