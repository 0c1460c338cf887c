package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// list reads all trees at one revision and publishes a snapshot of them. It identifies
// the store before and after, so that a list is of one store.
func (c *Cache) list(ctx context.Context) error {
	asked := c.o.Now()
	before, err := c.identify(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", etcd.MeshPrefix, err)
	}
	read, err := c.readTree(ctx)
	c.whole = errors.Is(err, rpctypes.ErrCompacted)
	if err != nil {
		return fmt.Errorf("list %s: %w", etcd.MeshPrefix, err)
	}
	content := read.content()
	if err := errors.Join(c.checkEmptied(before, content), c.checkFounded(before, content)); err != nil {
		return err
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
	c.setStore(etcd.Instance{Cluster: store.Cluster, ID: store.ID, Revision: header.Revision})
	c.versions.replace(read.entries)
	c.setQuarantine(read.quarantine)
	c.listed.Store(header.Revision)
	if c.cause != nil {
		c.metrics.relists.WithLabelValues(reasonOf(c.cause)).Inc() // before anybody sees the list
	}
	c.Replace((*cache.Snapshot)(nil).Next(header.Revision, content).InEpoch(c.epoch))
	c.fresh.restart(asked)
	c.o.Log.Info("configuration listed", "revision", header.Revision, "objects", c.Snapshot().Configs().Len())
	return nil
}

type listing struct {
	header     *etcdserverpb.ResponseHeader
	entries    []entry // in the order of their paths
	quarantine Quarantine
}

func (c *Cache) readTree(ctx context.Context) (listing, error) {
	var out listing
	entries, wait := c.readAll(ctx, func(ctx context.Context, each pairs) (err error) {
		out.header, err = c.scan(ctx, etcd.Range{Prefix: etcd.MeshPrefix, Whole: c.whole}, each)
		return err
	})
	out.take(entries, c.quarantineEntry)
	return out, wait()
}

// take collects the entries and quarantines those at fault.
func (l *listing) take(entries iter.Seq[entry], confine func(*Quarantined, bool) *Quarantined) {
	for e := range entries {
		if e.fault != nil {
			l.quarantine = l.quarantine.with(confine(e.fault, e.value != nil))
		}
		if e.path != "" {
			l.entries = append(l.entries, e)
		}
	}
}

func (l *listing) content() cache.Content {
	var out cache.Content
	rest := l.entries
	for _, t := range trees {
		n := sort.Search(len(rest), func(i int) bool { return !strings.HasPrefix(rest[i].path, t.path) })
		t.fill(&out, rest[:n])
		rest = rest[n:]
	}
	return out
}

// isOf says whether a value of a snapshot may have a mod revision. Only objects have
// theirs.
func isOf(value any, revision int64) bool {
	object, ok := value.(*config.Config)
	return !ok || hasVersion(object, revision)
}

func hasVersion(object *config.Config, revision int64) bool {
	var digits [20]byte
	return object.ResourceVersion == string(strconv.AppendInt(digits[:0], revision, 10))
}
