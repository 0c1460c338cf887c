package mirror_test

import (
	"crypto/tls"
	"log/slog"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Members of a cluster leave connections to each other behind.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"))
}

// subject mirrors what a second client writes to the same etcd.
func subject(t testing.TB, mirrored, writer *clientv3.Client, adjust ...func(*mirror.Options)) cachetest.Subject {
	t.Helper()
	store, err := etcd.New(writer, etcd.Options{
		Schemas: schema.Pilot(), MaxTxnOps: etcdtest.MaxTxnOps, MaxRequestBytes: etcdtest.MaxRequestBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return over(mirrored, store, adjust...)
}

func over(client *clientv3.Client, store *etcd.Store, adjust ...func(*mirror.Options)) cachetest.Subject {
	worker := cache.NewWorker()
	o := mirror.Options{
		Worker: worker, Schemas: schema.Pilot(), Store: store,
		ProgressInterval: 50 * time.Millisecond, RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
	}
	for _, a := range adjust {
		a(&o)
	}
	return cachetest.Subject{Cache: mirror.New(client, o), Store: store, Worker: worker}
}

func logTo(h slog.Handler) func(*mirror.Options) {
	return func(o *mirror.Options) { o.Log = slog.New(h) }
}

func mirrorOf(r *cachetest.Rig) *mirror.Cache { return r.Cache.(*mirror.Cache) }

func TestInProcess(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		client := etcdtest.Start(t)
		return subject(t, client, client)
	})
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		endpoint := etcdtest.Listen(t)
		return subject(t, etcdtest.Dial(t, endpoint), etcdtest.Dial(t, endpoint))
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		dir := shortDir(t)
		c := embed.NewConfig()
		c.Dir = filepath.Join(dir, "data")
		anywhere := []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}
		c.ListenPeerUrls, c.ListenClientUrls, c.AdvertiseClientUrls = nil, anywhere, anywhere
		c.ClientAutoTLS = true
		n := startConfig(t, c, dir, "", nil)
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + n.server.Clients[0].Addr().String()}, Logger: zap.NewNop(),
			TLS: &tls.Config{InsecureSkipVerify: true}, // signed by itself, for this test
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return subject(t, client, client)
	})
}

func TestThreeMembers(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, func(t testing.TB) cachetest.Subject {
		nodes, again := startCluster(t)
		for i := range nodes {
			again(i)
		}
		return subject(t, dialAll(t, nodes), etcdtest.Dial(t, nodes[2].endpoint))
	})
}

func BenchmarkInProcess(b *testing.B) {
	var client *clientv3.Client
	cachetest.Benchmark(b, func(b testing.TB) cachetest.Subject {
		client = etcdtest.Start(b)
		return subject(b, client, client)
	}, func(s cachetest.Subject) cachetest.Subject { return over(client, s.Store.(*etcd.Store)) })
}

func BenchmarkUnixSocket(b *testing.B) {
	var client *clientv3.Client
	cachetest.Benchmark(b, func(b testing.TB) cachetest.Subject {
		endpoint := etcdtest.Listen(b)
		client = etcdtest.Dial(b, endpoint)
		return subject(b, client, client)
	}, func(s cachetest.Subject) cachetest.Subject { return over(client, s.Store.(*etcd.Store)) })
}
