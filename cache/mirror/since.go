package mirror

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// Since is like Feed.Since, and adds the objects that the revision of the last list
// deleted: no list has them, so Since reads them from the store. A caller that follows
// from there gets the whole revision, even if it got a part before from another server.
// If etcd has compacted the revision before the list, Since returns the Feed's answer;
// if etcd does not answer, it returns false.
func (c *Cache) Since(ctx context.Context, revision int64) (*cache.Snapshot, bool) {
	since, ok := c.Feed.Since(ctx, revision)
	if !ok || revision != c.listed.Load() {
		return since, ok
	}
	at, ok := c.At(revision)
	if !ok {
		return nil, false
	}
	content := since.Content()
	switch err := c.restoreDeleted(ctx, &content, at.Content(), revision-1); {
	case errors.Is(err, rpctypes.ErrCompacted):
		return since, true
	case err != nil:
		c.o.Log.Warn("cannot tell what the revision of the last list deleted", "revision", revision, "err", err)
		return nil, false
	}
	return since.Next(since.Revision(), content), true
}

// restoreDeleted adds to content the values that existed at a revision and are not in
// now.
func (c *Cache) restoreDeleted(ctx context.Context, content *cache.Content, now cache.Content, revision int64) error {
	if revision <= 0 {
		return nil
	}
	var gone []string
	collect := func(kvs []*mvccpb.KeyValue) error {
		for _, kv := range kvs {
			path := strings.TrimPrefix(string(kv.Key), etcd.MeshPrefix)
			if tree := treeAt(path); tree != nil && tree.get(&now, path) == nil {
				gone = append(gone, path)
			}
		}
		return nil
	}
	if _, err := c.scan(ctx, etcd.Range{Prefix: etcd.MeshPrefix, Revision: revision, KeysOnly: true}, collect); err != nil {
		return err
	}
	for _, path := range gone {
		read, err := c.get(ctx, etcd.MeshPrefix+path, clientv3.WithRev(revision))
		if err != nil {
			return err
		}
		for _, kv := range read.Kvs {
			tree := treeAt(path)
			if value, err := tree.decode(c, kv); err == nil { // nobody has seen a value that cannot be decoded
				tree.set(content, path, value)
			}
		}
	}
	return nil
}
