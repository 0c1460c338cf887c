package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// newer writes a format to a store, as a newer binary does.
func newer(t testing.TB, client *clientv3.Client, format, minReader int64) {
	t.Helper()
	put(t, client, etcd.FormatKey, formatValue(t, &envelope.Format{StorageFormat: format, MinReader: minReader}))
}

func formatValue(t testing.TB, f *envelope.Format) []byte {
	t.Helper()
	body, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("ptl\x01"), body...)
}

func format(t testing.TB, store *etcd.Store) etcd.Format {
	t.Helper()
	f, err := store.Format(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheFirstMutationWritesTheFormat(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Start(t))
	if f := format(t, store); f.Revision != 0 || f.Writable() != nil || f.Readable() != nil {
		t.Errorf("an empty store has format %+v", f)
	}
	first := create(t, store, entry("a", "1.example"))
	create(t, store, entry("b", "1.example"))
	f := format(t, store)
	if f.StorageFormat != etcd.StorageFormat || f.MinReader != etcd.MinReader || f.Revision != parse(t, first) {
		t.Errorf("format is %+v, want that of this binary as of revision %s", f, first)
	}
}

// TestNothingIsWrittenIntoAnEmptiedStore: a store that knew the etcd before refuses to
// write. A server that starts afterwards cannot know.
func TestNothingIsWrittenIntoAnEmptiedStore(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("a", "1.example"))
	if _, err := client.Delete(t.Context(), etcd.Root, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := store.Create(t.Context(), entry("b", "1.example"))
		if !isErr(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "emptied") {
			t.Errorf("%v, want ErrUnavailable", err)
		}
	}
	if left := keysUnder(t, client, etcd.Root); len(left) != 0 {
		t.Errorf("%d keys were written", len(left))
	}
	create(t, open(t, client), entry("c", "1.example"))
	create(t, store, entry("d", "1.example"))
}

func TestALowerFormatIsRaisedAndKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	lower := &envelope.Format{StorageFormat: 0, MinReader: 0}
	lower.ProtoReflect().SetUnknown(unknownField)
	put(t, client, etcd.FormatKey, formatValue(t, lower))
	create(t, store, entry("a", "1.example"))
	if f := format(t, store); f.StorageFormat != 2 || f.MinReader != etcd.MinReader {
		t.Errorf("format is %+v", f)
	}
	if got := value(t, client, etcd.FormatKey).Value; !strings.Contains(string(got), string(unknownField)) {
		t.Errorf("a field of another writer is gone: %q", got)
	}
}

// TestAWriteRaisesTheFormatToWhatItNeeds: an object, or the rows of a registry, to 2, and an
// object under a lease to 3. A status does not raise it, so older servers can go on writing.
func TestAWriteRaisesTheFormatToWhatItNeeds(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	older := func() { newer(t, client, 1, 1) }
	side := func(key string) {
		t.Helper()
		if ok, err := store.WriteSide(t.Context(), []etcd.SideWrite{{Key: key, Value: []byte("x"), Revision: etcd.Any}}); err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
	}
	for name, step := range map[string]struct {
		write func()
		want  int64
	}{
		"status":   {func() { side(etcd.StatusPrefix + "x") }, 1},
		"registry": {func() { side(etcd.RegistryPrefix + "consul/x") }, 2},
		"object":   {func() { create(t, store, entry("a", "1.example")) }, 2},
		"machine":  {func() { putUnder(t, store, grant(t, store), "a") }, 3},
	} {
		older()
		step.write()
		if f := format(t, store); f.StorageFormat != step.want || f.MinReader != 1 {
			t.Errorf("after a write of a %s the format is %+v", name, f)
		}
	}
}

// TestManagedFieldsStay: a write without managed fields keeps those in the store.
func TestManagedFieldsStay(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	create(t, store, entry("a", "1.example"))
	key := etcd.ConfigKey(entry("a").Key())
	wrapper := unwrap(t, value(t, client, key).Value)
	fields := &envelope.ManagedFields{Manager: "kubectl", Operation: "Apply", ApiVersion: "networking.istio.io/v1", FieldsType: "FieldsV1", Fields: []byte(`{"f:spec":{}}`), Time: 1}
	wrapper.ManagedFields = []*envelope.ManagedFields{fields}
	put(t, client, key, wrap(t, wrapper))
	if _, err := store.Update(t.Context(), entry("a", "2.example")); err != nil {
		t.Fatal(err)
	}
	if got := unwrap(t, value(t, client, key).Value).ManagedFields; len(got) != 1 || !proto.Equal(got[0], fields) {
		t.Errorf("%v", got)
	}
}

// writers are all ways to change a store that has the objects of prepare.
func writers(t testing.TB) map[string]func(context.Context, *etcd.Store) error {
	out := map[string]func(context.Context, *etcd.Store) error{
		"prune": func(ctx context.Context, s *etcd.Store) error {
			_, err := s.Prune(ctx, storage.Retention{Keep: 1})
			return err
		},
	}
	for name, m := range mutations {
		out[name] = func(ctx context.Context, s *etcd.Store) error {
			_, _, err := s.Apply(ctx, m.ops)
			return err
		}
	}
	return out
}

// everything returns the mod revision of every key of a store, except that of the
// format.
func everything(t testing.TB, client *clientv3.Client) map[string]int64 {
	t.Helper()
	response, err := client.Get(t.Context(), etcd.Root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for _, kv := range response.Kvs {
		if string(kv.Key) != etcd.FormatKey {
			all[string(kv.Key)] = kv.ModRevision
		}
	}
	return all
}

// TestUpgradeOldRefusesToWriteAboveItsFormat: a newer binary wrote to the store
// before the older one read its format, or between the reading and the writing.
func TestUpgradeOldRefusesToWriteAboveItsFormat(t *testing.T) {
	t.Parallel()
	for name, write := range writers(t) {
		for when, between := range map[string]bool{"before": false, "between": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				t.Parallel()
				client := etcdtest.Start(t)
				var ahead atomic.Int64
				old := open(t, client, func(o *etcd.Options) {
					o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				})
				prepare(t, old)
				if _, err := old.Update(t.Context(), entry("other", "0", "1")); err != nil { // leaves something to prune
					t.Fatal(err)
				}
				ahead.Store(int64(2 * storage.HistoryGrace))
				before := everything(t, client)
				kv := hook(client)
				if between {
					kv.before = once(func() error { newer(t, client, etcd.StorageFormat+1, 1); return nil })
				} else {
					newer(t, client, etcd.StorageFormat+1, 1)
				}
				err := write(t.Context(), old)
				if !isErr(err, storage.ErrReadOnly) || !strings.Contains(err.Error(), fmt.Sprintf("format %d", etcd.StorageFormat+1)) ||
					!strings.Contains(err.Error(), fmt.Sprintf("writes %d", etcd.StorageFormat)) || !strings.Contains(err.Error(), "portolan upgrade check") {
					t.Errorf("error is %v, want ErrReadOnly that names both formats", err)
				}
				if after := everything(t, client); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("the store had %v and has %v", before, after)
				}
				if got := contents(t, old); len(got) != 2 {
					t.Errorf("it reads %v", got)
				}
				newer(t, client, etcd.StorageFormat, etcd.MinReader)
				if err := write(t.Context(), old); err != nil {
					t.Errorf("of a format that it knows: %v", err)
				}
			})
		}
	}
}

// TestUpgradeWhileAnAnswerIsLost: what landed before the newer binary wrote is reported
// done, what did not is refused, and nothing lands later.
func TestUpgradeWhileAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	lost := errors.New("the answer is lost")
	for name, m := range mutations {
		t.Run(name+"/landed", func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			old := open(t, client)
			prepare(t, old)
			hook(client).after = once(func() error { newer(t, client, etcd.StorageFormat+1, 1); return lost })
			revision, results, err := old.Apply(markMutation(t), m.ops)
			if err != nil {
				t.Fatal(err)
			}
			wantOnce(t, old, revision, results)
		})
		t.Run(name+"/not landed", func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			old := open(t, client)
			prepare(t, old)
			before := everything(t, client)
			hook(client).before = once(func() error { newer(t, client, etcd.StorageFormat+1, 1); return lost })
			if _, _, err := old.Apply(markMutation(t), m.ops); !isErr(err, storage.ErrReadOnly) {
				t.Errorf("error is %v, want ErrReadOnly", err)
			}
			if after := everything(t, client); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the store had %v and has %v", before, after)
			}
		})
	}
}

func TestAFormatThatCannotBeReadStopsWrites(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	put(t, client, etcd.FormatKey, []byte("3"))
	if _, err := store.Create(t.Context(), entry("a", "1.example")); !isErr(err, storage.ErrReadOnly) || !strings.Contains(err.Error(), etcd.FormatKey) {
		t.Errorf("error is %v, want ErrReadOnly that names the key", err)
	}
}

func TestAStoreThatNeedsANewerReaderIsRead(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	prepare(t, store)
	newer(t, client, 7, 5)
	if got := contents(t, store); len(got) != 2 {
		t.Errorf("it reads %v", got)
	}
	err := format(t, store).Readable()
	if err == nil || !strings.Contains(err.Error(), "format 5") {
		t.Errorf("Readable is %v", err)
	}
}

var unknownField = protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of a newer binary")

// TestUpgradeOldLosesNoField: a newer binary of the same format wrote fields that
// this one does not know, into the envelope and into the spec.
func TestUpgradeOldLosesNoField(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	old := open(t, client)
	create(t, old, entry("a", "1.example"))
	key := etcd.ConfigKey(entry("a").Key())
	wrapper := unwrap(t, value(t, client, key).Value)
	wrapper.ProtoReflect().SetUnknown(unknownField)
	wrapper.Spec.Value = append(wrapper.Spec.Value, unknownField...)
	put(t, client, key, wrap(t, wrapper))

	same := entry("a", "1.example")
	before := value(t, client, key)
	if _, results, err := old.Apply(t.Context(), []storage.Op{{Verb: storage.Put, Config: same}}); err != nil || results[0].Outcome != storage.Unchanged {
		t.Errorf("the same again is %v, %v, want unchanged", results, err)
	}
	if after := value(t, client, key); after.ModRevision != before.ModRevision {
		t.Error("the same again was written")
	}

	labelled := entry("a", "1.example")
	labelled.Labels = map[string]string{"more": "labels"}
	if _, err := old.Update(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	wantUnknown(t, value(t, client, key).Value)
	if got, err := old.Get(t.Context(), schema.ServiceEntry, "a", "shop"); err != nil || got.Generation != 1 || got.Labels["more"] != "labels" {
		t.Errorf("the object is %+v, %v", got, err)
	}

	if _, err := old.Update(t.Context(), entry("a", "2.example")); err != nil {
		t.Fatal(err)
	}
	wantUnknown(t, value(t, client, key).Value)
	if got, err := old.Get(t.Context(), schema.ServiceEntry, "a", "shop"); err != nil || got.Generation != 2 || host(got) != "2.example" {
		t.Errorf("the object is %+v, %v", got, err)
	}
}

func wantUnknown(t *testing.T, value []byte) {
	t.Helper()
	wrapper := unwrap(t, value)
	if got := wrapper.ProtoReflect().GetUnknown(); string(got) != string(unknownField) {
		t.Errorf("the unknown field of the envelope is %q", got)
	}
	if !strings.HasSuffix(string(wrapper.Spec.Value), string(unknownField)) {
		t.Errorf("the unknown field of the spec is gone: %q", wrapper.Spec.Value)
	}
}
