package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// faulty are keys of the configuration tree that are no objects, each with the object
// that its history record names.
var faulty = map[string]string{
	etcd.ConfigKey(entry("broken").Key()):            "serviceentry/shop/broken",
	etcd.ConfigPrefix + "example.org/Unknown/bank/x": "unknown/bank/x",
	etcd.ConfigPrefix + "example.org/Unknown/_/x":    "unknown/x",
	etcd.ConfigPrefix + "short":                      "/short",
	etcd.ConfigPrefix:                                "/",
	etcd.ConfigPrefix + "a\x00/\xff":                 "/a\x00/\uFFFD",
	etcd.AddressPrefix + "a.example/b/c":             "/address/a.example/b/c",
	etcd.HealthPrefix + "shop/broken":                "/health/shop/broken",
}

func TestDiscardRemovesWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for key, named := range faulty {
		t.Run(fmt.Sprintf("%q", key), func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			store := open(t, client)
			create(t, store, entry("sound", "1.example"))
			put(t, client, key, []byte("junk"))
			revision := value(t, client, key).ModRevision
			deleted, err := store.Discard(markMutation(t), key, revision)
			if err != nil {
				t.Fatal(err)
			}
			if response, err := client.Get(t.Context(), key); err != nil || len(response.Kvs) > 0 || fmt.Sprint(response.Header.Revision) != deleted {
				t.Errorf("reported deleted at %s: %v, %v", deleted, response, err)
			}
			records, err := store.Records(t.Context(), storage.Query{Limit: 1})
			if err != nil || len(records) != 1 || len(records[0].Changes) != 1 {
				t.Fatalf("records are %v, %v", records, err)
			}
			if r, c := records[0], records[0].Changes[0]; r.Origin.User != "me" || r.Revision != deleted || c.Outcome != storage.Deleted || c.Key.String() != named {
				t.Errorf("the record is %+v", r)
			}
			if got := contents(t, store); len(got) != 1 {
				t.Errorf("objects are %v", got)
			}
			_, err = store.Discard(t.Context(), key, revision)
			if !isErr(err, storage.ErrNotFound) {
				t.Errorf("again: %v, want ErrNotFound", err)
			}
		})
	}
}

func TestDiscardKeepsTheValueInTheHistory(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	key := etcd.ConfigPrefix + "example.org/Unknown/bank/x"
	put(t, client, key, []byte("junk"))
	deleted, err := store.Discard(t.Context(), key, value(t, client, key).ModRevision)
	if err != nil {
		t.Fatal(err)
	}
	for recordKey, revision := range everything(t, client) {
		if !strings.HasPrefix(recordKey, etcd.HistoryPrefix) || fmt.Sprint(revision) != deleted {
			continue
		}
		record := &envelope.Record{}
		if err := proto.Unmarshal(value(t, client, recordKey).Value[4:], record); err != nil || string(record.Entries[0].Before) != "junk" {
			t.Errorf("the record is %v, %v", record, err)
		}
		return
	}
	t.Error("there is no record")
}

func TestDiscardRefuses(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("sound", "1.example"))
	sound, broken, side := etcd.ConfigKey(entry("sound").Key()), etcd.ConfigKey(entry("broken").Key()), etcd.StatusPrefix+"x"
	healthy := etcd.HealthKey("shop", "w")
	said, err := envelope.Encode(&envelope.Health{Namespace: "shop", Name: "w", Uid: "u", Healthy: true})
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, healthy, said)
	put(t, client, broken, []byte("junk"))
	put(t, client, side, []byte("x"))
	at := func(key string) int64 { return value(t, client, key).ModRevision }
	before := everything(t, client)
	for name, tt := range map[string]struct {
		key      string
		revision int64
		class    error
		says     string
	}{
		"a sound object":   {sound, at(sound), storage.ErrInvalid, "sound"},
		"a sound health":   {healthy, at(healthy), storage.ErrInvalid, "sound"},
		"another revision": {broken, at(broken) - 1, storage.ErrConflict, "serviceentry/shop/broken"},
		"no revision":      {broken, 0, storage.ErrConflict, ""},
		"another tree":     {side, at(side), storage.ErrInvalid, etcd.MeshPrefix},
		"the identity":     {etcd.InstanceKey, 1, storage.ErrInvalid, etcd.MeshPrefix},
		"nothing":          {etcd.ConfigPrefix + "nothing", 1, storage.ErrNotFound, ""},
	} {
		if _, err := store.Discard(t.Context(), tt.key, tt.revision); !isErr(err, tt.class) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, tt.class, tt.says)
		}
	}
	newer(t, client, etcd.StorageFormat+1, 1)
	if _, err := store.Discard(t.Context(), broken, at(broken)); !isErr(err, storage.ErrReadOnly) {
		t.Errorf("of a newer format: %v, want ErrReadOnly", err)
	}
	if after := everything(t, client); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the store had %v and has %v", before, after)
	}
}

// TestDiscardWhoseAnswerIsLost: the discard lands once, whether or not the first request
// did, and never deletes a later value.
func TestDiscardWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	lost := errors.New("the answer is lost")
	key := etcd.ConfigKey(entry("x").Key())
	begin := func(t *testing.T) (*etcd.Store, *hooked, int64) {
		client := etcdtest.Start(t)
		store := open(t, client)
		put(t, client, key, []byte("junk"))
		return store, hook(client), value(t, client, key).ModRevision
	}
	t.Run("landed", func(t *testing.T) {
		t.Parallel()
		store, kv, revision := begin(t)
		kv.after = once(func() error { return lost })
		deleted, err := store.Discard(markMutation(t), key, revision)
		if landed := landings(t, store); err != nil || len(landed) != 1 || landed[0] != deleted {
			t.Errorf("landed at %v, reported %s, %v", landed, deleted, err)
		}
	})
	t.Run("not landed", func(t *testing.T) {
		t.Parallel()
		store, kv, revision := begin(t)
		kv.before = once(func() error { return lost })
		deleted, err := store.Discard(markMutation(t), key, revision)
		if landed := landings(t, store); err != nil || len(landed) != 1 || landed[0] != deleted {
			t.Errorf("landed at %v, reported %s, %v", landed, deleted, err)
		}
	})
	t.Run("mended meanwhile", func(t *testing.T) {
		t.Parallel()
		store, kv, revision := begin(t)
		kv.before = once(func() error {
			if _, err := store.Update(t.Context(), entry("x", "mended")); err != nil {
				return err
			}
			return lost
		})
		if _, err := store.Discard(markMutation(t), key, revision); !isErr(err, storage.ErrConflict) {
			t.Errorf("error is %v, want ErrConflict", err)
		}
		if got, err := store.Get(t.Context(), schema.ServiceEntry, "x", "shop"); err != nil || host(got) != "mended" {
			t.Errorf("the object is %v, %v", got, err)
		}
	})
}

func TestSurveyCounts(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	prepare(t, store)
	create(t, store, entry("third", "0"))
	newerField := func(name string, change func(*envelope.Envelope)) {
		key := etcd.ConfigKey(entry(name).Key())
		wrapper := unwrap(t, value(t, client, key).Value)
		change(wrapper)
		put(t, client, key, wrap(t, wrapper))
	}
	newerField("old", func(e *envelope.Envelope) { e.ProtoReflect().SetUnknown(unknownField) })
	newerField("other", func(e *envelope.Envelope) { e.Spec.Value = append(e.Spec.Value, unknownField...) })
	for key := range faulty {
		put(t, client, key, []byte("junk"))
	}
	got, err := store.Survey(t.Context())
	want := etcd.Survey{Format: got.Format, Objects: 3, UnknownFields: 2, UnknownKinds: 2, Undecodable: 1, Malformed: 3}
	if err != nil || got != want || got.Format.StorageFormat != etcd.StorageFormat {
		t.Errorf("survey is %+v, %v, want %+v", got, err, want)
	}
}

// TestWhatWasDiscardedIsPruned: the history record of a discarded key is pruned like any
// other, whatever the key was.
func TestWhatWasDiscardedIsPruned(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	var ahead atomic.Int64
	store := open(t, client, func(o *etcd.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	for key := range faulty {
		put(t, client, key, []byte("junk"))
		if _, err := store.Discard(t.Context(), key, value(t, client, key).ModRevision); err != nil {
			t.Fatal(err)
		}
	}
	ahead.Store(int64(2 * storage.HistoryGrace))
	removed, err := store.Prune(t.Context(), storage.Retention{Keep: 1, Deleted: time.Minute})
	if err != nil || removed != len(faulty) {
		t.Errorf("%d of %d records were pruned, %v", removed, len(faulty), err)
	}
	if _, err := store.Records(t.Context(), storage.Query{}); err != nil {
		t.Error(err)
	}
}

// TestASpecThatCannotBeReadIsReplaced: the envelope can be decoded, the spec in it
// cannot.
func TestASpecThatCannotBeReadIsReplaced(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("a", "1.example"))
	key := etcd.ConfigKey(entry("a").Key())
	for name, damage := range map[string]func(*envelope.Envelope){
		"bytes": func(e *envelope.Envelope) { e.Spec.Value = []byte("\xff\xff") },
		"type":  func(e *envelope.Envelope) { e.Spec.TypeUrl = "type.googleapis.com/istio.networking.v1alpha3.Sidecar" },
	} {
		wrapper := unwrap(t, value(t, client, key).Value)
		damage(wrapper)
		put(t, client, key, wrap(t, wrapper))
		if _, err := store.Get(t.Context(), schema.ServiceEntry, "a", "shop"); !isErr(err, etcd.ErrUndecodable) {
			t.Errorf("%s: Get is %v", name, err)
		}
		if _, results, err := store.Apply(t.Context(), []storage.Op{{Verb: storage.Put, Config: entry("a", "2.example")}}); err != nil || results[0].Outcome != storage.Configured {
			t.Errorf("%s: %v, %v", name, results, err)
		}
		if got, err := store.Get(t.Context(), schema.ServiceEntry, "a", "shop"); err != nil || host(got) != "2.example" {
			t.Errorf("%s: the object is %v, %v", name, got, err)
		}
	}
}
