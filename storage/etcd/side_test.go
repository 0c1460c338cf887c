package etcd_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// TestSideValues: values of the side tree are read back as written, and a value under
// the key of another is a fault.
func TestSideValues(t *testing.T) {
	t.Parallel()
	at := time.Unix(1234, 5678).UTC()
	report := &status.Report{
		Key: config.Key{Kind: schema.VirtualService, Namespace: "shop", Name: "reviews"}, UID: "u", Object: 7, Generation: 2,
		Conditions: []status.Condition{{Type: status.Accepted, Status: status.True, Reason: "R", Message: "m", Since: at}}, Addresses: []string{"10.0.0.1", "a.example"}, Revision: 9,
	}
	use := &status.Use{Replica: "host:1/a b", Part: 7, Objects: []uint64{1, 1 << 63}}
	replica := &status.Replica{ID: "host:1/a b", API: "127.0.0.1:15081", Proxies: 3, ReportsUse: true, Changes: []status.Change{{From: 1, To: 4, Alone: status.Count{Accepted: 1, Waiting: 2}, All: status.Count{Rejected: 3}}},
		Problems:      []status.Problem{{Node: "n", Type: "LDS", Revision: 1, Since: at, Rejected: true, RejectedRevision: 4, Resource: "0.0.0.0_80", Message: "no", Objects: []string{"p"}}},
		Registrations: []status.Registration{{Group: "g", Node: "n", Registered: true, Reason: "r"}},
		FailedPatches: []status.FailedPatch{{Filter: "f", Index: 2, Message: "no", Resources: []string{"LDS a"}, Count: 3}}, IdlePatches: []status.IdlePatch{{Filter: "f", Version: "7", Index: 1}},
		MissingModules: []status.MissingModule{{Plugin: "p", Fault: "it answers 404"}}}
	proxy := &status.Proxy{Node: "sidecar~10.0.0.1~a/b~c", Replica: "r", Seen: at, Revision: 9, Interception: "NONE", DNSCapture: true, Locality: "eu/a", Identity: "spiffe://cluster.local/ns/shop/sa/web", SelfDiscovery: true, Certified: true}
	head := &etcd.RegistryHead{Source: "consul/_/dc1", Confirmed: at.Truncate(time.Millisecond), Touched: at.Add(time.Hour).Truncate(time.Millisecond), State: []byte("{}")}
	items := map[string][]byte{"web/n1/a": []byte("1"), "web/n1/b": nil}
	for key, one := range map[string]struct {
		encode func() ([]byte, error)
		decode func(*mvccpb.KeyValue) (any, error)
		want   any
	}{
		etcd.ObjectStatusKey(report.Key): {func() ([]byte, error) { return etcd.EncodeStatus(report) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeStatus(kv, schema.Pilot()) }, report},
		etcd.ReplicaKey(replica.ID): {func() ([]byte, error) { return etcd.EncodeReplica(replica) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeReplica(kv) }, replica},
		etcd.UseKey(use.Replica, use.Part): {func() ([]byte, error) { return etcd.EncodeUse(use) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeUse(kv) }, use},
		etcd.ProxyKey(proxy.Node): {func() ([]byte, error) { return etcd.EncodeProxy(proxy) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeProxy(kv) }, proxy},
		etcd.RegistryHeadKey(head.Source): {func() ([]byte, error) { return etcd.EncodeRegistryHead(head) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeRegistryHead(kv) }, head},
		etcd.RegistryBucketKey(head.Source, 0xab): {func() ([]byte, error) { return etcd.EncodeRegistryBucket(head.Source, 0xab, items) },
			func(kv *mvccpb.KeyValue) (any, error) {
				_, items, err := etcd.DecodeRegistryBucket(kv)
				return items, err
			}, items},
	} {
		value, err := one.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := one.decode(&mvccpb.KeyValue{Key: []byte(key), Value: value, ModRevision: 9})
		if d := cmp.Diff(one.want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", key, err, d)
		}
		for _, bad := range []*mvccpb.KeyValue{{Key: []byte(key + "x"), Value: value}, {Key: []byte(key), Value: []byte("x")}} {
			if got, err := one.decode(bad); err == nil {
				t.Errorf("%s with %q: %v", bad.Key, bad.Value, got)
			}
		}
	}
}

// TestWriteSide: all changes are written or none, and none into a store of a higher
// format.
func TestWriteSide(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot(), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	key := etcd.ProxyKey("a")
	write := func(writes ...etcd.SideWrite) bool {
		t.Helper()
		done, err := store.WriteSide(t.Context(), writes)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if !write(etcd.SideWrite{Key: key, Value: []byte("1")}) || write(etcd.SideWrite{Key: key, Value: []byte("2")}) {
		t.Error("a key that has to be absent")
	}
	if write(etcd.SideWrite{Key: key, Revision: etcd.Any}, etcd.SideWrite{Key: etcd.ProxyKey("b"), Value: []byte("1"), Revision: 1}) {
		t.Error("one condition does not hold")
	}
	if got, err := client.Get(t.Context(), key); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" {
		t.Errorf("%v, %v", got, err)
	}
	if !write(etcd.SideWrite{Key: key, Revision: etcd.Any}) {
		t.Error("a deletion without a condition")
	}
	if _, err := client.Put(t.Context(), etcd.FormatKey, "of a newer server"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.WriteSide(t.Context(), []etcd.SideWrite{{Key: key, Value: []byte("1")}}); err == nil {
		t.Error("a store of a format that is not known was written")
	}
}

// TestRegistry: the content of a source is read as a whole, an undecodable bucket leaves
// the others, and all are deleted together.
func TestRegistry(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot(), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1234, 0).UTC()
	put := func(key string, value []byte, err error) {
		t.Helper()
		if err == nil {
			_, err = store.WriteSide(t.Context(), []etcd.SideWrite{{Key: key, Value: value, Revision: etcd.Any}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, source := range []string{"consul/_/a", "consul/_/ab"} {
		value, err := etcd.EncodeRegistryHead(&etcd.RegistryHead{Source: source, Confirmed: at, Touched: at})
		put(etcd.RegistryHeadKey(source), value, err)
		value, err = etcd.EncodeRegistryBucket(source, 3, map[string][]byte{"k": []byte(source)})
		put(etcd.RegistryBucketKey(source, 3), value, err)
	}
	put(etcd.RegistryBucketKey("consul/_/a", 4), []byte("broken"), nil)
	put(etcd.RegistryBucketKey("consul/_/lost", 4), []byte("broken"), nil)
	saved, err := client.Get(t.Context(), etcd.RegistryBucketKey("consul/_/a", 3))
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.ReadRegistry(t.Context(), "consul/_/a")
	want := etcd.RegistryContent{
		Head:    &etcd.RegistryHead{Source: "consul/_/a", Confirmed: at, Touched: at},
		Buckets: map[uint32]etcd.RegistryBucket{3: {Items: map[string][]byte{"k": []byte("consul/_/a")}, Bytes: len(saved.Kvs[0].Value)}},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	sources := func() (out []string) {
		heads, err := store.RegistryHeads(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range heads {
			out = append(out, h.Source+" "+h.Touched.Format(time.TimeOnly))
		}
		return out
	}
	if d := cmp.Diff([]string{"consul/_/a 00:20:34", "consul/_/ab 00:20:34", "consul/_/lost 00:00:00"}, sources()); d != "" {
		t.Error(d)
	}
	if err := store.DeleteRegistry(t.Context(), "consul/_/a"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"consul/_/ab 00:20:34", "consul/_/lost 00:00:00"}, sources()); d != "" {
		t.Error(d)
	}
}
