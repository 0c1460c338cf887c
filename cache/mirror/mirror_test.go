package mirror_test

import (
	"log/slog"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...) }

// subject mirrors the writes of a second client of the same etcd.
func subject(t testing.TB, mirrored, writer *clientv3.Client, adjust ...func(*mirror.Options)) cachetest.Subject {
	t.Helper()
	store, err := etcd.New(writer, etcd.Options{
		Schemas: schema.Pilot(), MaxTxnOps: etcdtest.MaxTxnOps, MaxRequestBytes: etcdtest.MaxRequestBytes,
		RequestTimeout: time.Minute, // the test is not about a busy machine
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

// TestConformance mirrors etcd over every kind of connection.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t testing.TB) cachetest.Subject{
		"in process": func(t testing.TB) cachetest.Subject {
			client := etcdtest.Start(t)
			return subject(t, client, client)
		},
		"unix socket": func(t testing.TB) cachetest.Subject {
			endpoint := etcdtest.Listen(t)
			return subject(t, etcdtest.Dial(t, endpoint), etcdtest.Dial(t, endpoint))
		},
		"TLS and the documented user": func(t testing.TB) cachetest.Subject {
			secured := etcdtest.NewSecured(t)
			return subject(t, secured.Dial(t, "portolan"), secured.Dial(t, "portolan"))
		},
		"three members": func(t testing.TB) cachetest.Subject {
			endpoints := etcdtest.Endpoints(etcdtest.Cluster(t))
			return subject(t, etcdtest.Dial(t, endpoints...), etcdtest.Dial(t, endpoints[2]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cachetest.Run(t, open)
		})
	}
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
