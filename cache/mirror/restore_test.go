package mirror_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestRestoreOfASnapshot: a running cache whose store is restored from a snapshot
// converges to it, and handlers get the difference. It does so after a restore by this
// product, and after one by etcd's own tool, which keeps revisions and cluster id. It
// does so whatever was written afterwards.
func TestRestoreOfASnapshot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restore func(t *testing.T, file string) (etcdDir string)
		further int // writes after the restore, before the cache is back
	}{
		"portolan":                         {restoreBumped, 0},
		"portolan, written to since":       {restoreBumped, 20},
		"etcdutl, an older revision":       {restoreAsItWas, 0},
		"etcdutl, overtaken by new writes": {restoreAsItWas, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := startNode(t, t.TempDir())
			origin := etcdtest.Dial(t, first.Endpoint)
			if _, err := etcd.EnsureInstance(t.Context(), origin); err != nil {
				t.Fatal(err)
			}
			r := &restored{registry: prometheus.NewRegistry(), log: &logged{}}
			r.faulty = newFaultyOf(t, first.Endpoint, register(r.registry), logTo(r.log))
			r.Apply(cachetest.Put("a", "x", 1), cachetest.Put("a", "y", 1))
			file := snapshotOf(t, first)
			fold := r.Fold()
			for i := range 10 {
				r.Put("a", "x", 2+i)
			}
			r.Put("a", "lost", 1)
			r.Start()
			r.expect(t, "add a/lost ->1", "add a/x ->11", "add a/y ->1")

			r.relay.lead("unix://" + filepath.Join(t.TempDir(), "nobody"))
			r.relay.cut()
			first.Stop()
			r.backup = startRestored(t, c.restore(t, file))
			client := etcdtest.Dial(t, r.backup.Endpoint)
			r.later = cachetest.NewRig(t, subject(t, client, client))
			for i := range c.further {
				r.later.Put("b", "z", i)
			}
			r.relay.cut()
			r.relay.lead(r.backup.Endpoint)
			r.converge(t)
			fold.Check()
			if r.Cache.Snapshot().Get(cachetest.Key("a", "lost")) != nil {
				t.Error("what was written after the snapshot is still there")
			}
		})
	}
}

// snapshotOf saves a snapshot of a running etcd.
func snapshotOf(t *testing.T, n *node) string {
	t.Helper()
	body, _, err := backup.Take(t.Context(), etcdtest.Dial(t, n.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot")
	_, err = backup.Write(body, file, backup.WriteOptions{Schemas: schema.Pilot()})
	if err = errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

func restoreBumped(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := member.Restore(t.Context(), member.RestoreOptions{File: file, DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "etcd")
}

func restoreAsItWas(t *testing.T, file string) string {
	t.Helper()
	c, dir := embed.NewConfig(), filepath.Join(t.TempDir(), "etcd")
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: c.Name, PeerURLs: []string{c.AdvertisePeerUrls[0].String()},
		InitialCluster: c.InitialCluster, InitialClusterToken: c.InitialClusterToken,
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startRestored runs an etcd on a restored directory.
func startRestored(t *testing.T, dir string) *node {
	t.Helper()
	return &node{Server: etcdtest.NewServer(t, func(c *embed.Config) { c.Dir = dir }), dir: dir}
}
