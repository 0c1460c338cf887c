package etcd_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func isErr(err, class error) bool { return errors.Is(err, class) }

func parse(t testing.TB, version string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stock makes a store assume etcd's default limits.
func stock(o *etcd.Options) { o.MaxTxnOps, o.MaxRequestBytes = 0, 0 }

func puts(n, size int) (ops []storage.Op) {
	for i := range n {
		ops = append(ops, storage.Op{Verb: storage.Put, Config: entry(fmt.Sprintf("e%05d", i), strings.Repeat("x", size))})
	}
	return ops
}

func wantTooLarge(t *testing.T, err error, names ...string) {
	t.Helper()
	if !isErr(err, storage.ErrTooLarge) {
		t.Fatalf("error is %v, want ErrTooLarge", err)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q does not name %q", err, name)
		}
	}
}

func wantEmpty(t *testing.T, store *etcd.Store) {
	t.Helper()
	objects, err := store.List(t.Context(), schema.ServiceEntry, "")
	if err != nil || len(objects) != 0 {
		t.Errorf("the store has %d objects, %v", len(objects), err)
	}
}

// largest is about the size of the largest object that a stock etcd takes.
const largest = etcd.StockMaxRequestBytes/2 - 1200

func TestAStockEtcdTakesWhatTheStoreLetsPass(t *testing.T) {
	t.Parallel()
	for name, ops := range map[string][]storage.Op{
		"126 operations":     puts(126, 10),
		"one large object":   puts(1, largest),
		"126 large together": puts(126, etcd.StockMaxRequestBytes/126-600),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t, etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits)), stock)
			if _, _, err := store.Apply(t.Context(), ops); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhatIsTooLargeIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Start(t, etcdtest.DefaultLimits), stock)
	_, _, err := store.Apply(t.Context(), puts(127, 10))
	wantTooLarge(t, err, "127 operations", "record of history", "storage format", "--max-txn-ops")
	_, _, err = store.Apply(t.Context(), puts(100, 20_000))
	wantTooLarge(t, err, "100 operations", "1572864", "--max-request-bytes")
	_, err = store.Create(t.Context(), entry("a", strings.Repeat("x", etcd.StockMaxRequestBytes/2)))
	wantTooLarge(t, err, "serviceentry/shop/a", "1572864", "--max-request-bytes")
	wantEmpty(t, store)
}

// TestWhatIsStoredCanBeReplacedAndDeleted: the record of history carries the
// former value, and random bytes are not compressed.
func TestWhatIsStoredCanBeReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits))
	store := open(t, client, stock)
	create(t, store, entry("a", noise(largest)))
	if _, err := store.Update(t.Context(), entry("a", noise(largest-4))); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Delete(t.Context(), schema.ServiceEntry, "a", "shop", ""); err != nil {
		t.Fatal(err)
	}
	changes, err := store.History(t.Context(), entry("a").Key(), 0)
	if err != nil || len(changes) != 3 || changes[0].Before.Spec == nil {
		t.Errorf("history is %v, %v", changes, err)
	}
	// Another writer wrote it, and it is larger than a record may keep.
	foreign, err := etcd.Encode(entry("b", noise(2*largest)), nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, etcd.ConfigKey(entry("b").Key()), foreign)
	if _, err := store.Delete(t.Context(), schema.ServiceEntry, "b", "shop", ""); err != nil {
		t.Fatal(err)
	}
	changes, err = store.History(t.Context(), entry("b").Key(), 0)
	if err != nil || len(changes) != 1 || changes[0].Before == nil || changes[0].Before.Spec != nil {
		t.Errorf("history is %v, %v, want one deletion of what is not known", changes, err)
	}
}

// noise is text that does not compress to less than three quarters.
func noise(n int) string {
	raw := make([]byte, n*3/4)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}

// TestALargeRecordIsCompressed: otherwise a batch that changes thousands of objects
// would be twice the size of one that creates them.
func TestALargeRecordIsCompressed(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client)
	const n = 1000
	for _, size := range []int{1000, 1001} {
		if _, _, err := store.Apply(t.Context(), puts(n, size)); err != nil {
			t.Fatal(err)
		}
	}
	records, err := store.Records(t.Context(), storage.Query{})
	if err != nil || len(records) != 2 || len(records[0].Changes) != n {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, op := range puts(n, 1000) {
		if before := records[0].Changes[i].Before; before == nil || !config.SameContent(before, op.Config) {
			t.Fatalf("change %d was of %v", i, before)
		}
	}
	response, err := client.Get(t.Context(), etcd.HistoryPrefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range response.Kvs {
		if len(kv.Value) > 200*n {
			t.Errorf("a record of %d objects takes %d bytes", n, len(kv.Value))
		}
	}
}

func TestAllOversizedObjectsOfABatchAreNamed(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Start(t, etcdtest.DefaultLimits), stock)
	ops := puts(3, 10)
	for _, i := range []int{0, 2} {
		ops[i].Config = entry(fmt.Sprintf("huge%d", i), strings.Repeat("x", etcd.StockMaxRequestBytes))
	}
	_, _, err := store.Apply(t.Context(), ops)
	wantTooLarge(t, err, "huge0", "huge2")
	all := (*multierror.Error)(nil)
	if !errors.As(err, &all) || len(all.Errors) != 2 {
		t.Errorf("error is %v, want two faults", err)
	}
	wantEmpty(t, store)
}

// The options of a store may have larger limits than its server.
func TestTheServersOwnLimitsAreErrTooLarge(t *testing.T) {
	t.Parallel()
	servers := map[string]func(*testing.T) *etcd.Store{
		"in process": func(t *testing.T) *etcd.Store { return open(t, etcdtest.Start(t, etcdtest.DefaultLimits)) },
		"unix socket": func(t *testing.T) *etcd.Store {
			return open(t, etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits)))
		},
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := start(t)
			var creates []storage.Op
			for _, op := range puts(129, 10) {
				creates = append(creates, storage.Op{Verb: storage.Create, Config: op.Config})
			}
			_, _, err := store.Apply(t.Context(), creates)
			wantTooLarge(t, err, strconv.Itoa(etcdtest.MaxTxnOps))
			_, err = store.Create(t.Context(), entry("a", strings.Repeat("x", 2*etcd.StockMaxRequestBytes)))
			wantTooLarge(t, err)
			wantEmpty(t, store)
		})
	}
}

// It is not parallel: etcd gives a request five seconds, and this one is large.
func TestABatchOfThousandsIsOneRevision(t *testing.T) {
	store := open(t, etcdtest.Dial(t, etcdtest.Listen(t)))
	const n = 5000
	revision, results, err := store.Apply(t.Context(), puts(n, 1000))
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != n || results[n-1].ResourceVersion != revision || revision != "2" {
		t.Errorf("%d results at revision %s", len(results), revision)
	}
}
