package mirror_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// node is an etcd whose data can be copied once it is stopped. The copy is like a
// restored backup, with the same cluster id.
type node struct {
	*etcdtest.Server
	dir string
}

// startNode runs an etcd on the data of a directory, which may be empty.
func startNode(t testing.TB, dir string, adjust ...etcdtest.Adjust) *node {
	t.Helper()
	adjust = append(adjust, func(c *embed.Config) { c.Dir = filepath.Join(dir, "data") })
	return &node{Server: etcdtest.NewServer(t, adjust...), dir: dir}
}

// copyOf returns a directory with the data of a node that was stopped.
func copyOf(t testing.TB, n *node) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(n.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}
