package etcdtest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// MaxTxnOps and MaxRequestBytes are the limits of the servers that the package starts. They
// lie between the limits of a stock etcd and of the product's embedded member.
const (
	MaxTxnOps       = 20_000
	MaxRequestBytes = 16 << 20
)

// Adjust changes the configuration of a server before it starts.
type Adjust func(*embed.Config)

// DefaultLimits gives a server etcd's default limits.
func DefaultLimits(c *embed.Config) {
	c.MaxTxnOps = embed.DefaultMaxTxnOps
	c.MaxRequestBytes = embed.DefaultMaxRequestBytes
}

// Start runs a server without any listener and returns a client in its process.
func Start(t testing.TB, adjust ...Adjust) *clientv3.Client {
	t.Helper()
	c := newConfig(directory(t))
	for _, a := range adjust {
		a(c)
	}
	server, _ := launch(t, c)
	awaitReady(t, server)
	client := v3client.New(server.Server)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Listen runs a server on a unix socket and returns the endpoint to Dial.
func Listen(t testing.TB, adjust ...Adjust) (endpoint string) {
	t.Helper()
	return NewServer(t, adjust...).Endpoint
}

// Dial returns a client of an endpoint, as the product makes it.
func Dial(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	return DialWith(t, dial.Options{Endpoints: endpoints})
}

// DialWith returns a client.
func DialWith(t testing.TB, o dial.Options) *clientv3.Client {
	t.Helper()
	client, err := dial.New(o)
	if err != nil {
		t.Fatalf("etcd client: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// directory returns a short path, as the path of a unix socket has at most 107 bytes.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newConfig(dir string) *embed.Config {
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "data")
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.TickMs, c.ElectionMs = 10, 100
	c.UnsafeNoFsync = true
	c.SnapshotCount, c.SnapshotCatchUpEntries = 500, 50
	c.MaxTxnOps = MaxTxnOps
	c.MaxRequestBytes = MaxRequestBytes
	return c
}

// launch starts a server, which may not be ready yet.
func launch(t testing.TB, c *embed.Config) (server *embed.Etcd, stopIt func()) {
	t.Helper()
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	stopIt = sync.OnceFunc(func() { stop(server) })
	t.Cleanup(stopIt)
	return server, stopIt
}

func awaitReady(t testing.TB, server *embed.Etcd) {
	t.Helper()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		t.Fatalf("etcd ended: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("etcd did not become ready in 30 s")
	}
}

// stop stops a server, even one that is not ready: Close alone would wait until it is.
func stop(server *embed.Etcd) {
	select {
	case <-server.Server.ReadyNotify():
	default:
		server.Server.HardStop()
	}
	server.Close()
}
