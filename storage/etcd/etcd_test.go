package etcd_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...) }

// open makes a store with the limits of etcdtest's servers.
func open(t testing.TB, client *clientv3.Client, adjust ...func(*etcd.Options)) *etcd.Store {
	t.Helper()
	o := etcd.Options{
		Schemas: schema.Pilot(), Domain: "mesh.internal",
		MaxTxnOps: etcdtest.MaxTxnOps, MaxRequestBytes: etcdtest.MaxRequestBytes,
		RequestTimeout: time.Minute, // for a machine busy with other tests
	}
	for _, a := range adjust {
		a(&o)
	}
	store, err := etcd.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func entry(name string, hosts ...string) *config.Config {
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name, Labels: map[string]string{"app": name},
		},
		Spec: &networking.ServiceEntry{Hosts: hosts},
	}
}

func create(t testing.TB, s *etcd.Store, c *config.Config) (version string) {
	t.Helper()
	version, err := s.Create(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func compact(t testing.TB, client *clientv3.Client, version string) {
	t.Helper()
	if _, err := client.Compact(t.Context(), parse(t, version), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	client := clientv3.NewCtxClient(t.Context())
	for name, o := range map[string]etcd.Options{
		"no schemas":     {},
		"negative limit": {Schemas: schema.Pilot(), MaxTxnOps: -1},
		"endless":        {Schemas: schema.Pilot(), RequestTimeout: storage.HistoryGrace},
	} {
		if _, err := etcd.New(client, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := etcd.New(nil, etcd.Options{Schemas: schema.Pilot()}); err == nil {
		t.Error("no client: no error")
	}
}

func TestABatchIsOneRevisionOfEtcd(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	watch := client.Watch(t.Context(), etcd.MeshPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	gone := create(t, store, entry("gone", "x"))
	<-watch
	revision, _, err := store.Apply(t.Context(), []storage.Op{
		{Verb: storage.Put, Config: entry("b", "b.example")},
		{Verb: storage.Put, Config: entry("a", "a.example")},
		{Verb: storage.Delete, Key: entry("gone").Key(), ResourceVersion: gone},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, event := range (<-watch).Events {
		got = append(got, fmt.Sprintf("%s %s@%d", event.Type, event.Kv.Key, event.Kv.ModRevision))
	}
	slices.Sort(got)
	want := []string{
		"DELETE " + etcd.ConfigKey(entry("gone").Key()) + "@" + revision,
		"PUT " + etcd.ConfigKey(entry("a").Key()) + "@" + revision,
		"PUT " + etcd.ConfigKey(entry("b").Key()) + "@" + revision,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestReadsSetTheDomain(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Start(t))
	create(t, store, entry("a", "a.example"))
	got, err := store.Get(t.Context(), schema.ServiceEntry, "a", "shop")
	if err != nil || got.Domain != "mesh.internal" {
		t.Errorf("domain %q, %v", got.Domain, err)
	}
}

func TestCreationTimeIsKeptWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[time.Time]
	set := func(t time.Time) { now.Store(&t) }
	set(time.Date(2030, 1, 1, 12, 0, 0, 987, time.FixedZone("", 3600)))
	store := open(t, etcdtest.Start(t), func(o *etcd.Options) { o.Now = func() time.Time { return *now.Load() } })
	create(t, store, entry("a", "1.example"))
	set(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	if _, err := store.Update(t.Context(), entry("a", "2.example")); err != nil {
		t.Fatal(err)
	}
	got, err := store.Get(t.Context(), schema.ServiceEntry, "a", "shop")
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2030, 1, 1, 11, 0, 0, 0, time.UTC); got.CreationTimestamp != want {
		t.Errorf("creation time is %v, want %v", got.CreationTimestamp, want)
	}
}

func TestListReadsSeveralPagesAtOneRevision(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Start(t))
	const n = 25_001 // two full pages and a part
	for from := 0; from < n; from += 2500 {
		fill(t, store, from, min(from+2500, n))
	}
	objects, err := store.List(t.Context(), schema.ServiceEntry, "shop")
	if err != nil || len(objects) != n {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	for i, o := range objects {
		if want := fmt.Sprintf("e%05d", i); o.Name != want {
			t.Fatalf("object %d is %s, want %s", i, o.Name, want)
		}
	}
}

// fill stores small objects, all in one batch.
func fill(t testing.TB, store *etcd.Store, from, to int) {
	t.Helper()
	var ops []storage.Op
	for i := from; i < to; i++ {
		ops = append(ops, storage.Op{Verb: storage.Put, Config: entry(fmt.Sprintf("e%05d", i), "a.example")})
	}
	if _, _, err := store.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
}

func TestCompactedVersionsAreErrCompacted(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	first := create(t, store, entry("a", "1.example"))
	second, err := store.Update(t.Context(), entry("a", "2.example"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), parse(t, second)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.GetResourceAtVersion(t.Context(), first, entry("a").Key()); !isErr(err, storage.ErrCompacted) {
		t.Errorf("at %s: %v, want ErrCompacted", first, err)
	}
	if got, err := store.GetResourceAtVersion(t.Context(), second, entry("a").Key()); err != nil || got != second {
		t.Errorf("at %s: %q, %v", second, got, err)
	}
}

func TestSetLedgerIsRefused(t *testing.T) {
	t.Parallel()
	store := open(t, clientv3.NewCtxClient(t.Context()))
	if err := store.SetLedger(store.GetLedger()); err == nil {
		t.Error("no error")
	}
}

func BenchmarkList(b *testing.B) {
	for name, client := range clients(b) {
		store := open(b, client)
		fill(b, store, 0, 10_000)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if all, err := store.List(b.Context(), schema.ServiceEntry, ""); err != nil || len(all) != 10_000 {
					b.Fatalf("%d objects, %v", len(all), err)
				}
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	for name, client := range clients(b) {
		store := open(b, client)
		for _, n := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for round := 0; b.Loop(); round++ {
					var ops []storage.Op
					for i := range n {
						ops = append(ops, storage.Op{Verb: storage.Put, Config: entry(fmt.Sprintf("e%d", i), fmt.Sprintf("%d.example", round))})
					}
					if _, _, err := store.Apply(b.Context(), ops); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func clients(b *testing.B) map[string]*clientv3.Client {
	return map[string]*clientv3.Client{
		"in process":  etcdtest.Start(b),
		"unix socket": etcdtest.Dial(b, etcdtest.Listen(b)),
	}
}
