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

// TestSideValues: what is kept on the side comes back as it was, and a value under
// another key than its own is none.
func TestSideValues(t *testing.T) {
	t.Parallel()
	at := time.Unix(1234, 5678).UTC()
	report := &status.Report{
		Key: config.Key{Kind: schema.VirtualService, Namespace: "shop", Name: "reviews"}, UID: "u", Object: 7, Generation: 2,
		Conditions: []status.Condition{{Type: status.Accepted, Status: status.True, Reason: "R", Message: "m", Since: at}}, Revision: 9,
	}
	replica := &status.Replica{ID: "host:1/a b", Proxies: 3, Changes: []status.Change{{From: 1, To: 4, Alone: status.Count{Accepted: 1, Waiting: 2}, All: status.Count{Rejected: 3}}},
		Troubles: []status.Trouble{{Node: "n", Type: "LDS", Revision: 1, Since: at, Rejected: true, RejectedRevision: 4, Message: "no", Objects: []string{"p"}}}}
	proxy := &status.Proxy{Node: "sidecar~10.0.0.1~a/b~c", Replica: "r", Seen: at, Revision: 9}
	for key, one := range map[string]struct {
		encode func() ([]byte, error)
		decode func(*mvccpb.KeyValue) (any, error)
		want   any
	}{
		etcd.ObjectStatusKey(report.Key): {func() ([]byte, error) { return etcd.EncodeStatus(report) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeStatus(kv, schema.Pilot()) }, report},
		etcd.ReplicaKey(replica.ID): {func() ([]byte, error) { return etcd.EncodeReplica(replica) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeReplica(kv) }, replica},
		etcd.ProxyKey(proxy.Node): {func() ([]byte, error) { return etcd.EncodeProxy(proxy) },
			func(kv *mvccpb.KeyValue) (any, error) { return etcd.DecodeProxy(kv) }, proxy},
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

// TestWriteSide: changes of the side are done all or not at all, and not in a store
// of a higher format.
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
