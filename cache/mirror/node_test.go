package mirror_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// node is an etcd on a unix socket that can be stopped, and whose data can be
// copied then: the copy is what a backup restores, the same cluster id included.
type node struct {
	dir      string
	endpoint string
	server   *embed.Etcd
	stop     func()
}

// startNode runs an etcd on the data of a directory, which may be empty.
func startNode(t testing.TB, dir string, adjust ...etcdtest.Adjust) *node {
	t.Helper()
	socket := filepath.Join(shortDir(t), "s")
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "data")
	at := url.URL{Scheme: "unix", Path: socket}
	c.ListenPeerUrls, c.ListenClientUrls, c.AdvertiseClientUrls = nil, []url.URL{at}, []url.URL{at}
	return startConfig(t, c, dir, at.String(), adjust)
}

func startConfig(t testing.TB, c *embed.Config, dir, endpoint string, adjust []etcdtest.Adjust) *node {
	t.Helper()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.TickMs, c.ElectionMs = 10, 100
	c.UnsafeNoFsync = true
	c.MaxTxnOps, c.MaxRequestBytes = etcdtest.MaxTxnOps, etcdtest.MaxRequestBytes
	for _, a := range adjust {
		a(c)
	}
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	stop := sync.OnceFunc(func() {
		select {
		case <-server.Server.ReadyNotify():
		default:
			server.Server.HardStop() // Close would wait for it to become ready
		}
		server.Close()
	})
	t.Cleanup(stop)
	return &node{dir: dir, endpoint: endpoint, server: server, stop: stop}
}

// copyOf returns a directory with the data of a node that was stopped.
func copyOf(t testing.TB, n *node) string {
	t.Helper()
	dir := shortDir(t)
	if err := os.CopyFS(dir, os.DirFS(n.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shortDir is one for a unix socket, whose path must not pass 107 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startCluster runs three members. again starts one that was stopped.
func startCluster(t testing.TB) (nodes []*node, again func(i int)) {
	t.Helper()
	var peers []url.URL
	var initial []string
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // all three are taken until the last is known
		peers = append(peers, url.URL{Scheme: "http", Host: l.Addr().String()})
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, l.Addr()))
	}
	nodes = make([]*node, 3)
	var dirs []string
	for range 3 {
		dirs = append(dirs, shortDir(t))
	}
	again = func(i int) {
		at := url.URL{Scheme: "unix", Path: filepath.Join(dirs[i], "s")}
		c := embed.NewConfig()
		c.Name, c.Dir = fmt.Sprint("m", i), filepath.Join(dirs[i], "data")
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{at}, []url.URL{at}
		c.ListenPeerUrls, c.AdvertisePeerUrls = peers[i:i+1], peers[i:i+1]
		c.InitialCluster = strings.Join(initial, ",")
		nodes[i] = startConfig(t, c, dirs[i], at.String(), nil)
	}
	return nodes, again
}

// dialAll is a client of all members.
func dialAll(t testing.TB, nodes []*node) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, n := range nodes {
		endpoints = append(endpoints, n.endpoint)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
