package etcd_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func stored() *config.Config {
	c := entry("a", "a.example", "b.example")
	c.Annotations = map[string]string{"x": "1", "y": "2", "z": "3"}
	c.CreationTimestamp = time.Unix(1_900_000_000, 0).UTC()
	c.Generation, c.UID = 3, "6b1f"
	return c
}

func encode(t testing.TB, c *config.Config) *mvccpb.KeyValue {
	t.Helper()
	value, err := etcd.Encode(c, []byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return &mvccpb.KeyValue{Key: []byte(etcd.ConfigKey(c.Key())), Value: value, ModRevision: 42}
}

func TestDecodeIsTheInverseOfEncode(t *testing.T) {
	t.Parallel()
	kv := encode(t, stored())
	before := proto.Clone(kv)
	got, err := etcd.Decode(kv, schema.Pilot(), "mesh.internal")
	if err != nil {
		t.Fatal(err)
	}
	want := stored()
	want.ResourceVersion, want.Domain = "42", "mesh.internal"
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("object (-want +got):\n%s", d)
	}
	if !proto.Equal(before, kv) {
		t.Error("Decode changed its argument")
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	t.Parallel()
	first := encode(t, stored()).Value
	for range 20 {
		if !bytes.Equal(first, encode(t, stored()).Value) {
			t.Fatal("two encodings differ")
		}
	}
	if !bytes.HasPrefix(first, []byte("ptl\x01")) {
		t.Errorf("the value begins with %q", first[:4])
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := encode(t, stored())
	with := func(change func(*mvccpb.KeyValue)) *mvccpb.KeyValue {
		kv := proto.Clone(good).(*mvccpb.KeyValue)
		change(kv)
		return kv
	}
	other := entry("a")
	other.Namespace = "bank"
	tests := map[string]struct {
		kv    *mvccpb.KeyValue
		class error
		names string
	}{
		"foreign key":       {with(func(kv *mvccpb.KeyValue) { kv.Key = []byte("/registry/pods/a") }), etcd.ErrForeignKey, "/registry/pods/a"},
		"no magic":          {with(func(kv *mvccpb.KeyValue) { kv.Value = []byte("{}") }), etcd.ErrUndecodable, "begin with"},
		"another format":    {with(func(kv *mvccpb.KeyValue) { kv.Value[3] = 9 }), etcd.ErrUndecodable, "begin with"},
		"empty":             {with(func(kv *mvccpb.KeyValue) { kv.Value = nil }), etcd.ErrUndecodable, "begin with"},
		"truncated":         {with(func(kv *mvccpb.KeyValue) { kv.Value = kv.Value[:len(kv.Value)-3] }), etcd.ErrUndecodable, "revision 42"},
		"no spec":           {with(func(kv *mvccpb.KeyValue) { kv.Value = withoutSpec(t, kv.Value) }), etcd.ErrUndecodable, "no spec"},
		"of another object": {with(func(kv *mvccpb.KeyValue) { kv.Key = []byte(etcd.ConfigKey(other.Key())) }), etcd.ErrUndecodable, "another object"},
		"of another type":   {with(func(kv *mvccpb.KeyValue) { kv.Value = withType(t, kv.Value) }), etcd.ErrUndecodable, "Sidecar"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := etcd.Decode(tt.kv, schema.Pilot(), "")
			if !isErr(err, tt.class) || !strings.Contains(err.Error(), tt.names) {
				t.Errorf("error is %v, want %v that names %q", err, tt.class, tt.names)
			}
		})
	}
}

func unwrap(t testing.TB, value []byte) *envelope.Envelope {
	t.Helper()
	e := &envelope.Envelope{}
	if err := proto.Unmarshal(value[4:], e); err != nil {
		t.Fatal(err)
	}
	return e
}

func wrap(t testing.TB, e *envelope.Envelope) []byte {
	t.Helper()
	body, err := proto.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("ptl\x01"), body...)
}

func withoutSpec(t testing.TB, value []byte) []byte {
	e := unwrap(t, value)
	e.Spec = nil
	return wrap(t, e)
}

func withType(t testing.TB, value []byte) []byte {
	e := unwrap(t, value)
	e.Spec.TypeUrl = "type.googleapis.com/istio.networking.v1alpha3.Sidecar"
	return wrap(t, e)
}

func value(t testing.TB, client *clientv3.Client, key string) *mvccpb.KeyValue {
	t.Helper()
	response, err := client.Get(t.Context(), key)
	if err != nil || len(response.Kvs) != 1 {
		t.Fatalf("get %s: %v, %v", key, response, err)
	}
	return response.Kvs[0]
}

func put(t testing.TB, client *clientv3.Client, key string, value []byte) {
	t.Helper()
	if _, err := client.Put(t.Context(), key, string(value)); err != nil {
		t.Fatal(err)
	}
}

func TestEveryMutationHasAWriteIDOfItsOwn(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("a", "1.example"))
	key := etcd.ConfigKey(entry("a").Key())
	first := unwrap(t, value(t, client, key).Value).WriteId
	if _, err := store.Update(t.Context(), entry("a", "2.example")); err != nil {
		t.Fatal(err)
	}
	second := unwrap(t, value(t, client, key).Value).WriteId
	if len(first) != 16 || len(second) != 16 || bytes.Equal(first, second) {
		t.Errorf("write ids are %x and %x", first, second)
	}
}

func TestFieldsOfANewerWriterSurviveAnUpdate(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("a", "1.example"))
	key := etcd.ConfigKey(entry("a").Key())
	unknown := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "from the future")
	put(t, client, key, append(value(t, client, key).Value, unknown...))
	if _, err := store.Update(t.Context(), entry("a", "2.example")); err != nil {
		t.Fatal(err)
	}
	if got := unwrap(t, value(t, client, key).Value).ProtoReflect().GetUnknown(); !bytes.Equal(got, unknown) {
		t.Errorf("unknown fields are %q, want %q", got, unknown)
	}
}

// TestForeignAndBrokenValuesBreakNothing: they are left out of lists, named by
// Get, and can be replaced and deleted.
func TestForeignAndBrokenValuesBreakNothing(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("good", "1.example"))
	put(t, client, etcd.ConfigKey(entry("broken").Key()), []byte("not ours"))
	put(t, client, etcd.ConfigKey(entry("worse").Key()), []byte("ptl\x01\xff\xff"))
	put(t, client, etcd.ConfigPrefix+"networking.istio.io/ServiceEntry/shop/too/long", []byte("x"))
	put(t, client, etcd.ConfigPrefix+"example.com/Teapot/shop/a", []byte("x"))

	objects, err := store.List(t.Context(), schema.ServiceEntry, "")
	if err != nil || len(objects) != 1 || objects[0].Name != "good" {
		t.Errorf("list is %v, %v", objects, err)
	}
	if _, err := store.Get(t.Context(), schema.ServiceEntry, "broken", "shop"); !isErr(err, etcd.ErrUndecodable) {
		t.Errorf("get: %v, want ErrUndecodable", err)
	}
	if _, err := store.Create(t.Context(), entry("broken", "1.example")); !isErr(err, storage.ErrExists) {
		t.Errorf("create: %v, want ErrExists", err)
	}
	_, results, err := store.Apply(t.Context(), []storage.Op{
		{Verb: storage.Put, Config: entry("broken", "1.example")},
		{Verb: storage.Delete, Key: entry("worse").Key()},
	})
	if err != nil || results[0].Outcome != storage.Configured || results[1].Outcome != storage.Deleted {
		t.Fatalf("apply: %v, %v", results, err)
	}
	got, err := store.Get(t.Context(), schema.ServiceEntry, "broken", "shop")
	if err != nil || got.UID == "" || got.Generation != 1 || got.CreationTimestamp.Before(time.Unix(1, 0)) {
		t.Errorf("the replaced object is %+v, %v", got, err)
	}
}

func TestParseConfigKeyIsTheInverseOfConfigKey(t *testing.T) {
	t.Parallel()
	cluster := &schema.Schema{
		GroupVersionKind: config.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Zone"}, ClusterScoped: true,
	}
	schemas := schema.NewSet(append(schema.Pilot().All(), cluster)...)
	for want, key := range map[string]config.Key{
		"/portolan/v1/mesh/config/networking.istio.io/ServiceEntry/shop/a": entry("a").Key(),
		"/portolan/v1/mesh/config/example.com/Zone/_/eu":                   {Kind: cluster.GroupVersionKind, Name: "eu"},
	} {
		if got := etcd.ConfigKey(key); got != want {
			t.Errorf("key of %v is %s, want %s", key, got, want)
		}
		if got, err := etcd.ParseConfigKey(want, schemas); err != nil || got != key {
			t.Errorf("parsed %s: %v, %v, want %v", want, got, err, key)
		}
	}
	for _, key := range []string{
		"", "/", "/portolan/v1/mesh/config", etcd.ConfigPrefix, etcd.ConfigPrefix + "a/b/c/d", etcd.StatusPrefix + "x",
		etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/shop",
		etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/shop/",
		etcd.ConfigPrefix + "networking.istio.io/ServiceEntry//a",
		etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/_/a",
		etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/shop/a/b",
		etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/shop/..",
		etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/shop/a\x00",
		etcd.ConfigPrefix + "networking.istio.io/serviceentry/shop/a",
		etcd.ConfigPrefix + "example.com/Zone/shop/eu",
	} {
		if got, err := etcd.ParseConfigKey(key, schemas); !isErr(err, etcd.ErrForeignKey) {
			t.Errorf("parsed %q: %v, %v, want ErrForeignKey", key, got, err)
		}
	}
}

func FuzzParseConfigKey(f *testing.F) {
	f.Add(etcd.ConfigKey(entry("a").Key()))
	f.Add(etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/_/a")
	f.Add("/registry/pods")
	schemas := schema.Pilot()
	f.Fuzz(func(t *testing.T, key string) {
		parsed, err := etcd.ParseConfigKey(key, schemas)
		switch {
		case err != nil && !isErr(err, etcd.ErrForeignKey):
			t.Errorf("parsing %q: %v is no ErrForeignKey", key, err)
		case err == nil && etcd.ConfigKey(parsed) != key:
			t.Errorf("%q came back as %q", key, etcd.ConfigKey(parsed))
		}
	})
}

func FuzzDecode(f *testing.F) {
	good := encode(f, stored())
	f.Add(good.Key, good.Value)
	f.Add(good.Key, []byte("ptl\x01"))
	f.Add([]byte("x"), good.Value)
	schemas := schema.Pilot()
	f.Fuzz(func(t *testing.T, key, value []byte) {
		kv := &mvccpb.KeyValue{Key: key, Value: value, ModRevision: 7}
		c, err := etcd.Decode(kv, schemas, "")
		if err != nil {
			if !isErr(err, etcd.ErrForeignKey) && !isErr(err, etcd.ErrUndecodable) {
				t.Errorf("decoding: %v has no class", err)
			}
			return
		}
		again, err := etcd.Decode(encode(t, c), schemas, "")
		if err != nil {
			t.Fatalf("what was decoded once is not decoded again: %v", err)
		}
		again.ResourceVersion = c.ResourceVersion
		if d := cmp.Diff(c, again, protocmp.Transform()); d != "" {
			t.Errorf("a round trip changes (-before +after):\n%s", d)
		}
	})
}

// FuzzDecodeBeside reads all that lies beside the objects.
func FuzzDecodeBeside(f *testing.F) {
	for _, prefix := range []string{etcd.AddressPrefix, etcd.HealthPrefix, etcd.StatusPrefix, etcd.HistoryPrefix} {
		f.Add([]byte(prefix+"shop/a"), []byte("ptl\x01\x0a\x04shop\x12\x01a"))
	}
	f.Add([]byte(etcd.FormatKey), []byte("ptl\x01\x08\x02\x10\x01"))
	schemas := schema.Pilot()
	f.Fuzz(func(t *testing.T, key, value []byte) {
		kv := &mvccpb.KeyValue{Key: key, Value: value, ModRevision: 7}
		_, address := etcd.DecodeAddress(kv)
		_, health := etcd.DecodeHealth(kv)
		_, status := etcd.DecodeStatus(kv, schemas)
		_, replica := etcd.DecodeReplica(kv)
		_, proxy := etcd.DecodeProxy(kv)
		_, record := etcd.RecordTime(kv)
		for _, err := range []error{address, health, status, replica, proxy, record} {
			if err != nil && !isErr(err, etcd.ErrForeignKey) && !isErr(err, etcd.ErrUndecodable) {
				t.Errorf("decoding: %v has no class", err)
			}
		}
		if f := etcd.DecodeFormat(kv); f.Fault == "" && !bytes.HasPrefix(value, []byte("ptl\x01")) {
			t.Errorf("a format of %q", value)
		}
	})
}
