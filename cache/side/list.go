package side

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

const (
	pageSize    = 1000
	callTimeout = 10 * time.Second
)

// list reads all that is on the side, as of one revision.
func (c *Cache) list(ctx context.Context) (*Facts, error) {
	facts := &Facts{}
	from, end := etcd.StatusPrefix, clientv3.GetPrefixRangeEnd(etcd.StatusPrefix)
	for {
		page, err := c.page(ctx, from, end, facts.Revision)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", etcd.StatusPrefix, err)
		}
		if facts.Revision == 0 {
			facts.Revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			c.put(facts, kv)
		}
		if !page.More {
			return facts, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// page reads some of the keys, at a revision where that is not 0.
func (c *Cache) page(ctx context.Context, from, end string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(pageSize))
}

// put takes in a value. What cannot be read leaves what was there.
func (c *Cache) put(f *Facts, kv *mvccpb.KeyValue) {
	var err error
	switch key := string(kv.Key); {
	case strings.HasPrefix(key, etcd.ObjectStatusPrefix):
		err = add(&f.Statuses, key[len(etcd.ObjectStatusPrefix):])(etcd.DecodeStatus(kv, c.o.Schemas))
	case strings.HasPrefix(key, etcd.ReplicaPrefix):
		err = add(&f.Replicas, key[len(etcd.ReplicaPrefix):])(etcd.DecodeReplica(kv))
	case strings.HasPrefix(key, etcd.ProxyPrefix):
		err = add(&f.Proxies, key[len(etcd.ProxyPrefix):])(etcd.DecodeProxy(kv))
	}
	if err != nil {
		c.o.Log.Debug("a status in etcd cannot be read, it is passed over", "err", err)
	}
}

// add returns what sets a value that could be decoded.
func add[V comparable](to *pmap.Map[V], path string) func(V, error) error {
	return func(value V, err error) error {
		if err == nil {
			*to = to.Set(path, value)
		}
		return err
	}
}

// remove drops what a key stands for.
func remove(f *Facts, key string) {
	switch {
	case strings.HasPrefix(key, etcd.ObjectStatusPrefix):
		f.Statuses = f.Statuses.Delete(key[len(etcd.ObjectStatusPrefix):])
	case strings.HasPrefix(key, etcd.ReplicaPrefix):
		f.Replicas = f.Replicas.Delete(key[len(etcd.ReplicaPrefix):])
	case strings.HasPrefix(key, etcd.ProxyPrefix):
		f.Proxies = f.Proxies.Delete(key[len(etcd.ProxyPrefix):])
	}
}
