package etcd_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/storetest"
)

// giving makes a store that gives addresses of the default ranges.
func giving(o *etcd.Options) { o.Addresses = address.DefaultRanges() }

// static is a ServiceEntry whose hosts get addresses.
func static(name string, hosts ...string) *config.Config {
	out := entry(name, hosts...)
	out.Spec.(*networking.ServiceEntry).Resolution = networking.ServiceEntry_STATIC
	return out
}

func keysUnder(t testing.TB, client *clientv3.Client, prefix string) []*mvccpb.KeyValue {
	t.Helper()
	answer, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	return answer.Kvs
}

func assigned(t testing.TB, client *clientv3.Client) (all []*address.Assignment) {
	t.Helper()
	for _, kv := range keysUnder(t, client, etcd.AddressPrefix) {
		one, err := etcd.DecodeAddress(kv)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// TestAddresses: four stores on one etcd.
func TestAddresses(t *testing.T) {
	t.Parallel()
	storetest.RunAddresses(t, func(t *testing.T, ranges address.Ranges, now func() time.Time) storetest.AddressSubject {
		endpoint := etcdtest.Listen(t)
		out := storetest.AddressSubject{Assigned: func(t *testing.T) []*address.Assignment {
			return assigned(t, etcdtest.Dial(t, endpoint))
		}}
		for range 4 {
			out.Stores = append(out.Stores, open(t, etcdtest.Dial(t, endpoint), func(o *etcd.Options) { o.Addresses, o.Now = ranges, now }))
		}
		return out
	})
}

// TestAddressesOutliveTheirServer: another store, even with other ranges, leaves a host
// the address that it has.
func TestAddressesOutliveTheirServer(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	create(t, open(t, client, giving), static("a", "x.example"))
	before := assigned(t, client)
	again := open(t, client, func(o *etcd.Options) {
		o.Addresses = address.Ranges{IPv4: netip.MustParsePrefix("10.0.0.0/24"), IPv6: netip.MustParsePrefix("fd00::/64")}
	})
	create(t, again, static("b", "x.example", "y.example"))
	after := assigned(t, client)
	if d := cmp.Diff(before[0], after[0], cmp.Comparer(func(a, b *address.Assignment) bool { return *a == *b })); d != "" || len(after) != 2 {
		t.Errorf("%d hosts have addresses; of the first (-before +after):\n%s", len(after), d)
	}
}

// TestAddressesAreDecidedInOneTransaction: object and address appear as one
// revision, and a batch that fails gives none.
func TestAddressesAreDecidedInOneTransaction(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client, giving)
	version := create(t, store, static("a", "a.example"))
	for _, prefix := range []string{etcd.AddressPrefix, etcd.SlotPrefix, etcd.ConfigPrefix, etcd.HistoryPrefix} {
		for _, kv := range keysUnder(t, client, prefix) {
			if got := fmt.Sprint(kv.ModRevision); got != version {
				t.Errorf("%s is of revision %s, the object of %s", kv.Key, got, version)
			}
		}
	}
	_, _, err := store.Apply(t.Context(), []storage.Op{
		{Verb: storage.Create, Config: static("b", "b.example")}, {Verb: storage.Create, Config: static("a", "a.example")},
	})
	if !isErr(err, storage.ErrExists) || len(assigned(t, client)) != 1 {
		t.Errorf("a batch that failed with %v left %d addresses", err, len(assigned(t, client)))
	}
}

// TestTheLimitsOfABatchWithAddresses: what does not fit one transaction is refused
// with the numbers, and the limit is exact.
func TestTheLimitsOfABatchWithAddresses(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits))
	store := open(t, client, giving, stock)
	batch := func(n int) (ops []storage.Op) {
		for i := range n {
			ops = append(ops, storage.Op{Verb: storage.Create, Config: static(fmt.Sprintf("e%d-%d", n, i), fmt.Sprintf("e%d-%d.example", n, i))})
		}
		return ops
	}
	_, _, err := store.Apply(t.Context(), batch(43))
	if !isErr(err, storage.ErrTooLarge) || len(assigned(t, client)) != 0 {
		t.Errorf("43 objects with a host each: %v", err)
	}
	if _, _, err := store.Apply(t.Context(), batch(42)); err != nil {
		t.Errorf("42 objects with a host each: %v", err)
	}
}

// TestAnObjectWithTooManyHostsIsNamed: no batch could carry the object, alone or among
// others.
func TestAnObjectWithTooManyHostsIsNamed(t *testing.T) {
	t.Parallel()
	store := open(t, etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits)), giving, stock)
	many := func(n int) (hosts []string) {
		for i := range n {
			hosts = append(hosts, fmt.Sprintf("h%d.example", i))
		}
		return hosts
	}
	create(t, store, static("fits", many(62)...))
	for name, ops := range map[string][]storage.Op{
		"alone":        {{Verb: storage.Create, Config: static("large", many(126)...)}},
		"among others": {{Verb: storage.Create, Config: static("small", "small.example")}, {Verb: storage.Put, Config: static("large", many(126)...)}},
		"an update":    {{Verb: storage.Update, Config: static("fits", append(many(1), "b.example", "c.example")...)}},
	} {
		_, _, err := store.Apply(t.Context(), ops)
		if !isErr(err, storage.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
			continue
		}
		object := ops[len(ops)-1].Config.Key()
		for _, words := range []string{object.String(), "spec.hosts: ", " hosts get or lose an address", "62 are the most", "split it", "--max-txn-ops"} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %q does not say %q", name, err, words)
			}
		}
	}
	if _, err := store.Delete(t.Context(), schema.ServiceEntry, "fits", "shop", ""); err != nil {
		t.Error(err)
	}
}

// TestALargeObjectInDoubtIsSettledInParts: an object with more hosts than a transaction
// holds does not keep other objects from their addresses.
func TestALargeObjectInDoubtIsSettledInParts(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, etcdtest.Listen(t, etcdtest.DefaultLimits))
	var hosts []string
	for i := range 300 {
		hosts = append(hosts, fmt.Sprintf("h%d.example", i))
	}
	old, store := open(t, client, stock), open(t, client, giving, stock)
	objects := []*config.Config{static("large", hosts...), static("small", "small.example")}
	for _, object := range objects {
		create(t, old, object)
	}
	doubts := address.Doubts(slices.Values(objects), nil)
	if without, err := store.SettleAddresses(t.Context(), doubts); err != nil || len(without) != 0 {
		t.Fatalf("%d hosts without, %v", len(without), err)
	}
	owners, err := store.AddressOwners(t.Context())
	if err != nil || len(owners) != 301 {
		t.Errorf("%d hosts have addresses, %v", len(owners), err)
	}
	if left := address.Doubts(slices.Values(objects), owners); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

// TestDoubtsAreSettled: objects of a store that gave none get their addresses,
// and what nobody owns goes.
func TestDoubtsAreSettled(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	old, store := open(t, client), open(t, client, giving)
	for i := range 100 {
		create(t, old, static(fmt.Sprintf("e%d", i), fmt.Sprintf("e%d.example", i), "all.example"))
	}
	create(t, store, static("new", "new.example"))
	if _, err := old.Delete(t.Context(), schema.ServiceEntry, "new", "shop", ""); err != nil { // as an older server does
		t.Fatal(err)
	}
	settle := func() (doubts int) {
		t.Helper()
		owners, err := store.AddressOwners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		objects, err := store.List(t.Context(), schema.ServiceEntry, "")
		if err != nil {
			t.Fatal(err)
		}
		found := address.Doubts(slices.Values(objects), owners)
		if _, err := store.SettleAddresses(t.Context(), found); err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := settle(); n != 101 {
		t.Errorf("%d doubts, want 101", n)
	}
	if n := len(assigned(t, client)); n != 101 {
		t.Errorf("%d hosts have addresses, want 101", n)
	}
	before := store.Version()
	if n := settle(); n != 0 || store.Version() != before {
		t.Errorf("settled once more: %d doubts, version %s was %s", n, store.Version(), before)
	}
}

// TestADamagedAddressIsReplaced: an undecodable value of a host or an address blocks
// nobody.
func TestADamagedAddressIsReplaced(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client, giving)
	create(t, store, static("a", "a.example"))
	before := assigned(t, client)[0]
	for _, key := range []string{etcd.AddressKey("shop", "a.example"), etcd.SlotPrefix + before.IPv4.String()} {
		put(t, client, key, []byte("?"))
	}
	create(t, store, static("b", "a.example"))
	if got := assigned(t, client); len(got) != 1 || got[0].Host != "a.example" {
		t.Errorf("the host has %v", got)
	}
}

// TestTheCostOfAnAddressIsFlat: the cost of a change does not grow with the number of
// addresses.
func TestTheCostOfAnAddressIsFlat(t *testing.T) {
	client := etcdtest.Start(t)
	hooked := hook(client)
	store := open(t, client, giving)
	cost := func(from int) (allocations, asked float64) {
		const n = 200
		var before, after runtime.MemStats
		hooked.requests.Store(0)
		runtime.ReadMemStats(&before)
		for i := range n {
			create(t, store, static(fmt.Sprintf("e%d", from+i), fmt.Sprintf("e%d.example", from+i)))
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / n, float64(hooked.requests.Load()) / n
	}
	cost(0) // warms up
	few, _ := cost(200)
	for made := 400; made < 10_000; made += 400 {
		var ops []storage.Op
		for i := range 400 {
			name := fmt.Sprintf("more%d", made+i)
			ops = append(ops, storage.Op{Verb: storage.Create, Config: static(name, name+".example")})
		}
		if _, _, err := store.Apply(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	many, asked := cost(20_000)
	t.Logf("%.0f allocations among 400 addresses, %.0f among 10,000, %.2f requests", few, many, asked)
	if many > 1.5*few || asked > 2 {
		t.Errorf("%.0f allocations among 400 addresses, %.0f among 10,000, %.2f requests", few, many, asked)
	}
}
