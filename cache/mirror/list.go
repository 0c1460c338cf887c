package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

const (
	// pageSize is large because etcd counts the rest of the range for every
	// page: small pages cost the square of the number of keys.
	pageSize = 10_000
	// callTimeout bounds one page.
	callTimeout = 15 * time.Second
)

// entry is one object of a list, by the path of its key.
type entry struct {
	path   string
	object *config.Config
}

// list reads the whole tree at one revision and publishes it.
func (c *Cache) list(ctx context.Context) error {
	first, err := c.page(ctx, etcd.MeshPrefix, 0)
	if err != nil {
		return fmt.Errorf("list %s: %w", etcd.MeshPrefix, err)
	}
	revision := first.Header.Revision
	// The revisions of another store say nothing about the objects held.
	sameStore := first.Header.ClusterId == c.cluster && revision >= c.Snapshot().Revision()
	var entries []entry
	for page := first; ; {
		for _, kv := range page.Kvs {
			entries = c.collect(entries, kv, sameStore)
		}
		if !page.More {
			break
		}
		next := string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		if page, err = c.page(ctx, next, revision); err != nil {
			return fmt.Errorf("list %s from %q at revision %d: %w", etcd.MeshPrefix, next, revision, err)
		}
	}
	c.cluster = first.Header.ClusterId
	c.Replace(cache.NewSnapshot(revision, pmap.FromSorted(all(entries))))
	c.o.Log.Info("configuration listed", "revision", revision, "objects", len(entries))
	return nil
}

// page reads from a key on, at a revision or, where that is 0, at the newest.
func (c *Cache) page(ctx context.Context, from string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, err := c.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(etcd.MeshPrefix)),
		clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
	if err == nil {
		c.hear()
	}
	return page, err
}

// collect adds what one key and value hold. An object that is held already
// stays the same pointer, so that the difference to it is nothing.
func (c *Cache) collect(entries []entry, kv *mvccpb.KeyValue, sameStore bool) []entry {
	path, ok := strings.CutPrefix(string(kv.Key), etcd.ConfigPrefix)
	if !ok {
		return entries
	}
	held := c.Snapshot().Configs().Value(path)
	if held != nil && sameStore && hasVersion(held, kv.ModRevision) {
		return append(entries, entry{path, held})
	}
	object := c.decode(kv)
	switch {
	case object == nil:
		object = held
	case held != nil && same(held, object):
		object = held
	}
	if object == nil {
		return entries
	}
	return append(entries, entry{path, object})
}

func all(entries []entry) iter.Seq2[string, *config.Config] {
	return func(yield func(string, *config.Config) bool) {
		for _, e := range entries {
			if !yield(e.path, e.object) {
				return
			}
		}
	}
}

func hasVersion(object *config.Config, revision int64) bool {
	var digits [20]byte
	return object.ResourceVersion == string(strconv.AppendInt(digits[:0], revision, 10))
}

// same says whether two objects are one state of one incarnation.
func same(a, b *config.Config) bool {
	return a.ResourceVersion == b.ResourceVersion && a.UID == b.UID && a.Generation == b.Generation &&
		a.CreationTimestamp.Equal(b.CreationTimestamp) && config.SameContent(a, b)
}

// decode returns the object of a key and value, nil where there is none to be
// had from them; that is logged once per key and revision.
func (c *Cache) decode(kv *mvccpb.KeyValue) *config.Config {
	object, err := etcd.Decode(kv, c.o.Schemas, c.o.Domain)
	key := string(kv.Key)
	switch {
	case err == nil:
		delete(c.broken, key)
		return object
	case errors.Is(err, etcd.ErrForeignKey):
		c.o.Log.Debug("passing over a foreign key in etcd", "key", key, "revision", kv.ModRevision, "err", err)
	case c.broken[key] != kv.ModRevision:
		c.broken[key] = kv.ModRevision
		c.o.Log.Error("a value in etcd cannot be decoded: the last good object goes on serving; apply it again or delete it",
			"key", key, "revision", kv.ModRevision, "err", err)
	}
	return nil
}
