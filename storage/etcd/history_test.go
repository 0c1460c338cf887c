package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestARecordIsWrittenWithItsBatch: the record has the write id of the objects that the
// batch wrote.
func TestARecordIsWrittenWithItsBatch(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	prepare(t, store)
	revision, _, err := store.Apply(t.Context(), mutations["batch"].ops)
	if err != nil {
		t.Fatal(err)
	}
	id, err := uuid.FromBytes(unwrap(t, value(t, client, etcd.ConfigKey(entry("new").Key())).Value).WriteId)
	if err != nil {
		t.Fatal(err)
	}
	record := value(t, client, "/portolan/v1/side/history/"+id.String())
	if record.ModRevision != parse(t, revision) || record.CreateRevision != record.ModRevision {
		t.Errorf("the record is of %d, the batch of %s", record.ModRevision, revision)
	}
	response, err := client.Get(t.Context(), etcd.HistoryPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || response.Count != 3 {
		t.Errorf("%d records of 3 batches, %v", response.Count, err)
	}
}

// wrapRecord returns the value of a record as another binary could have written it.
func wrapRecord(t testing.TB, r *envelope.Record) []byte {
	t.Helper()
	body, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("ptl\x01"), body...)
}

// TestBrokenRecordsBreakNothing: readers skip undecodable records, and nothing deletes
// them.
func TestBrokenRecordsBreakNothing(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	first := create(t, store, entry("a", "1"))
	put(t, client, etcd.HistoryPrefix+"garbage", []byte("not ours"))
	put(t, client, etcd.HistoryPrefix+"worse", []byte("ptl\x01\xff\xff"))
	put(t, client, etcd.HistoryPrefix+"packed", wrapRecord(t, &envelope.Record{Packed: []byte("no gzip")}))
	put(t, client, etcd.HistoryPrefix+"unknown", wrapRecord(t, &envelope.Record{
		Time: time.Now().UnixMilli(),
		Entries: []*envelope.Entry{{
			Group: "example.com", Kind: "Teapot", Namespace: "shop", Name: "pot",
			Outcome: 99, Before: []byte("?"), BeforeRevision: parse(t, first),
		}},
	}))
	last, err := store.Update(t.Context(), entry("a", "2"))
	if err != nil {
		t.Fatal(err)
	}
	compact(t, client, last)

	changes, err := store.History(t.Context(), entry("a").Key(), 0)
	if err != nil || len(changes) != 2 {
		t.Errorf("history is %v, %v", changes, err)
	}
	records, err := store.Records(t.Context(), storage.Query{})
	if err != nil || len(records) != 3 {
		t.Fatalf("records are %v, %v", records, err)
	}
	pot := records[1].Changes[0]
	if pot.Key.String() != "teapot/shop/pot" || pot.Outcome != "99" || pot.Before.Spec != nil || pot.After.Spec != nil {
		t.Errorf("the change of an unknown kind is %+v", pot)
	}
	objects, err := store.At(t.Context(), first, storage.Selection{})
	if err != nil || len(objects) != 1 || host(objects[0]) != "1" {
		t.Errorf("at %s: %v, %v", first, objects, err)
	}
	if n, err := store.Prune(t.Context(), storage.Retention{Keep: 1}); n != 0 || err != nil {
		t.Errorf("prune removed %d, %v", n, err)
	}
}

// TestAChangeByHandIsNotGuessed: without a record of the change nobody knows what the
// object was before.
func TestAChangeByHandIsNotGuessed(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	first := create(t, store, entry("a", "1"))
	second := create(t, store, entry("b", "1"))
	byHand := encode(t, entry("a", "by hand"))
	put(t, client, string(byHand.Key), byHand.Value)
	ofA := storage.Selection{Kind: schema.ServiceEntry, Namespace: "shop", Name: "a"}
	if objects, err := store.At(t.Context(), first, ofA); err != nil || len(objects) != 1 || host(objects[0]) != "1" {
		t.Errorf("before compaction: %v, %v", objects, err)
	}
	now, err := client.Get(t.Context(), etcd.MeshPrefix)
	if err != nil {
		t.Fatal(err)
	}
	compact(t, client, fmt.Sprint(now.Header.Revision))
	for _, of := range []storage.Selection{{}, ofA} {
		if _, err := store.At(t.Context(), second, of); !isErr(err, storage.ErrCompacted) {
			t.Errorf("at %s: %v, want ErrCompacted", second, err)
		}
	}
	changes, err := store.History(t.Context(), entry("a").Key(), 0)
	if err != nil || len(changes) != 1 || changes[0].After.Spec != nil {
		t.Errorf("history is %+v, %v, want one change whose result is not known", changes, err)
	}
	// A later change has a record, which says what the object was.
	if _, err := store.Update(t.Context(), entry("a", "2")); err != nil {
		t.Fatal(err)
	}
	if changes, err = store.History(t.Context(), entry("a").Key(), 0); err != nil || host(changes[0].Before) != "by hand" {
		t.Errorf("history is %+v, %v", changes, err)
	}
	if _, err := store.At(t.Context(), second, ofA); !isErr(err, storage.ErrCompacted) {
		t.Errorf("at %s: %v, want ErrCompacted", second, err)
	}
}

// TestHistoryOfKindsWithoutNamespace: the floors of history are by kind and namespace,
// and these kinds have none.
func TestHistoryOfKindsWithoutNamespace(t *testing.T) {
	t.Parallel()
	zone := &schema.Schema{
		GroupVersionKind: config.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Zone"},
		ClusterScoped:    true, Versions: []string{"v1"}, Codec: config.Protobuf[wrapperspb.StringValue](),
	}
	now := time.Now()
	client := etcdtest.Start(t)
	store := open(t, client, func(o *etcd.Options) {
		o.Schemas = schema.NewSet(append(schema.Pilot().All(), zone)...)
		o.Now = func() time.Time { now = now.Add(time.Hour); return now }
	})
	object := func(spec string) *config.Config {
		return &config.Config{Meta: config.Meta{GroupVersionKind: zone.GroupVersionKind, Name: "eu"}, Spec: wrapperspb.String(spec)}
	}
	create(t, store, entry("a", "1"))
	first := create(t, store, object("1"))
	last := first
	for _, spec := range []string{"2", "3"} {
		var err error
		if last, err = store.Update(t.Context(), object(spec)); err != nil {
			t.Fatal(err)
		}
	}
	compact(t, client, last)
	if n, err := store.Prune(t.Context(), storage.Retention{Keep: 1}); n != 2 || err != nil {
		t.Fatalf("removed %d, %v", n, err)
	}
	for selection, class := range map[storage.Selection]error{
		{Kind: zone.GroupVersionKind}:             storage.ErrCompacted,
		{Kind: zone.GroupVersionKind, Name: "eu"}: storage.ErrCompacted,
		{}:                          storage.ErrCompacted,
		{Namespace: "shop"}:         nil,
		{Kind: schema.ServiceEntry}: nil,
		{Kind: zone.GroupVersionKind, Namespace: "shop"}: storage.ErrInvalid,
		{Kind: schema.ServiceEntry, Name: "a"}:           storage.ErrInvalid,
		{Namespace: "_"}:                                 storage.ErrInvalid,
	} {
		if _, err := store.At(t.Context(), first, selection); !isErr(err, class) {
			t.Errorf("%+v at %s: %v, want %v", selection, first, err, class)
		}
	}
}

// TestHistoryOfManyPages: the page size follows the size of the records.
func TestHistoryOfManyPages(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	const n = 1100
	create(t, store, entry("a", "0"))
	for i := range n {
		if _, err := store.Update(t.Context(), entry("a", fmt.Sprint(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	changes, err := store.History(t.Context(), entry("a").Key(), 0)
	if err != nil || len(changes) != n+1 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	for i, c := range changes {
		if host(c.After) != fmt.Sprint(n-i) {
			t.Fatalf("change %d is to %s", i, host(c.After))
		}
	}
}

// BenchmarkHistory reads the history of one object among many records.
func BenchmarkHistory(b *testing.B) {
	client := etcdtest.Dial(b, etcdtest.Listen(b))
	store := open(b, client)
	for _, n := range []int{1000, 10_000, 100_000} {
		var have int64
		response, err := client.Get(b.Context(), etcd.HistoryPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			b.Fatal(err)
		}
		have = response.Count
		size := 0
		for i := have; i < int64(n); i++ {
			c := large(fmt.Sprintf("e%d", i%1000), i)
			size = proto.Size(c.Spec.(proto.Message))
			if _, _, err := store.Apply(b.Context(), []storage.Op{{Verb: storage.Put, Config: c}}); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("%d records of %d bytes", n, size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if changes, err := store.History(b.Context(), entry("e7").Key(), 10); err != nil || len(changes) == 0 {
					b.Fatalf("%d changes, %v", len(changes), err)
				}
			}
		})
	}
}

// large is an object of about a kibibyte.
func large(name string, i int64) *config.Config {
	var hosts []string
	for n := range 30 {
		hosts = append(hosts, fmt.Sprintf("host-%d-of-%d.shop.example.com", n, i))
	}
	return entry(name, hosts...)
}

// TestRecordsAreInTheOrderOfRevisions: the keys of records are random, but records come
// in the order of their revisions.
func TestRecordsAreInTheOrderOfRevisions(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Start(t))
	var want []string
	for i := range 50 {
		want = append([]string{create(t, store, entry(fmt.Sprintf("e%d", i), "x"))}, want...)
	}
	records, err := store.Records(t.Context(), storage.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, r.Revision)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("revisions (-want +got):\n%s", d)
	}
}
