package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// list reads the whole tree at one revision and publishes it. Which store it is
// read from is asked before and after, so that a list is of one store.
func (c *Cache) list(ctx context.Context) error {
	asked := c.o.Now()
	before, err := c.identify(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", etcd.MeshPrefix, err)
	}
	read, err := c.readTree(ctx)
	c.inOne = errors.Is(err, rpctypes.ErrCompacted)
	if err != nil {
		return fmt.Errorf("list %s: %w", etcd.MeshPrefix, err)
	}
	store, err := c.ensureIdentity(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", etcd.MeshPrefix, err)
	}
	header := read.header
	if header.ClusterId != store.Cluster || before.Cluster != store.Cluster || (before.ID != "" && before.ID != store.ID) ||
		header.Revision < before.Revision || store.Revision < header.Revision {
		return errors.New("the store in etcd was replaced while it was listed")
	}
	c.enter(etcd.Instance{Cluster: store.Cluster, ID: store.ID, Revision: header.Revision})
	c.versions.replace(read.seen)
	c.setQuarantine(read.quarantine)
	c.Replace(cache.NewSnapshot(header.Revision, read.configs).InEpoch(c.epoch))
	c.fresh.restart(asked)
	c.o.Log.Info("configuration listed", "revision", header.Revision, "objects", read.configs.Len())
	return nil
}

// tree is what a list came to.
type tree struct {
	header     *etcdserverpb.ResponseHeader
	configs    pmap.Map[*config.Config]
	seen       []seen
	quarantine Quarantine
}

// seen is a value of a list.
type seen struct {
	path    string
	version version
}

func (c *Cache) readTree(ctx context.Context) (tree, error) {
	var out tree
	entries, wait := c.readAll(ctx, func(ctx context.Context, each pairs) (err error) {
		out.header, err = c.scan(ctx, query{prefix: etcd.MeshPrefix, inOne: c.inOne}, each)
		return err
	})
	out.configs = pmap.FromSorted(out.take(entries, c.confine))
	return out, wait()
}

// take notes the versions in entries, confines what is at fault and passes on
// the objects.
func (t *tree) take(entries iter.Seq[entry], confine func(*Quarantined, bool) *Quarantined) iter.Seq2[string, *config.Config] {
	return func(yield func(string, *config.Config) bool) {
		for e := range entries {
			if e.fault != nil {
				t.quarantine = t.quarantine.with(confine(e.fault, e.object != nil))
			}
			if e.path == "" {
				continue
			}
			t.seen = append(t.seen, seen{e.path, e.version})
			if e.object != nil {
				yield(e.path, e.object)
			}
		}
	}
}

func hasVersion(object *config.Config, revision int64) bool {
	var digits [20]byte
	return object.ResourceVersion == string(strconv.AppendInt(digits[:0], revision, 10))
}
