package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// AddressStore is a store that RunAddresses can hold to the contract.
type AddressStore interface {
	storage.ConfigStore
	storage.Batcher
}

// AddressSubject is a new and empty store of the kinds of schema.Pilot that allocates
// addresses.
type AddressSubject struct {
	// Stores share the same data. There is at least one, and several if the implementation
	// allows that.
	Stores []AddressStore
	// Assigned returns the present assignments.
	Assigned func(t *testing.T) []*address.Assignment
}

// RunAddresses holds a store to the promises of package address. open returns a new subject
// at every call, which allocates addresses of ranges and whose clock is now.
func RunAddresses(t *testing.T, open func(t *testing.T, ranges address.Ranges, now func() time.Time) AddressSubject) {
	for _, c := range addressTests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ranges := address.DefaultRanges()
			if c.ipv4 != "" {
				ranges.IPv4 = netip.MustParsePrefix(c.ipv4)
			}
			f := &given{T: t, clock: &clock{}, ranges: ranges}
			f.clock.set(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
			f.AddressSubject = open(t, ranges, f.clock.now)
			c.run(f)
		})
	}
}

type addressTest struct {
	name string
	// ipv4 is the IPv4 range; empty for the default.
	ipv4 string
	run  func(*given)
}

var addressTests = []addressTest{
	{"AHostGetsAnAddressOfEachRange", "", aHostGetsAnAddress},
	{"OnlyThoseWithoutGetOne", "", onlyThoseWithout},
	{"AnUpdateKeepsIt", "", anUpdateKeepsIt},
	{"ServiceEntriesOfOneHostShareIt", "", entriesShareIt},
	{"AnotherNamespaceHasItsOwn", "", anotherNamespace},
	{"ItGoesWithTheLastServiceEntry", "", itGoesWithTheLast},
	{"OneThatComesBackHasItsFormerOne", "", itComesBack},
	{"TheLabelSwitchesItOffAndOn", "", theLabel},
	{"ABatchMovesAHostBetweenObjects", "", aBatchMoves},
	{"AFreeOneIsNotGivenAtOnce", "10.0.0.0/30", notGivenAtOnce},
	{"AnExhaustedRangeRefusesNoWrite", "10.0.0.0/30", anExhaustedRange},
	{"EveryAddressOfARangeIsGiven", "10.0.0.0/26", everyAddress},
	{"AllHostsOfALargeObjectAreReplaced", "", replaced},
	{"ARangeThatIsTooSmallForAnObject", "10.0.0.0/24", tooSmall},
	{"ManyWritersAtOnce", "10.0.0.0/24", manyWriters},
	{"AnyOrderOfAnything", "10.0.0.0/27", anyOrder},
}

type given struct {
	*testing.T
	AddressSubject
	clock  *clock
	ranges address.Ranges
}

func (f *given) apply(ops ...storage.Op) {
	f.Helper()
	if _, _, err := f.Stores[0].Apply(f.Context(), ops); err != nil {
		f.Fatalf("apply: %v", err)
	}
}

// put makes or changes a ServiceEntry with hosts.
func (f *given) put(namespace, name string, hosts ...string) {
	f.Helper()
	f.apply(storage.Op{Verb: storage.Put, Config: entry(namespace, name, hosts...)})
}

// addresses returns the IPv4 addresses by namespace/host.
func (f *given) addresses() map[string]string {
	f.Helper()
	out := map[string]string{}
	for _, a := range f.Assigned(f.T) {
		out[a.Path()] = a.IPv4.String()
	}
	return out
}

// expect checks that exactly these hosts have addresses, which are distinct and of the
// ranges.
func (f *given) expect(hosts ...string) {
	f.Helper()
	var got []string
	seen := map[netip.Addr]string{}
	for _, a := range f.Assigned(f.T) {
		got = append(got, a.Path())
		if !f.ranges.IPv4.Contains(a.IPv4) || a.IPv6 != f.ranges.IPv6For(a.IPv4) || a.Revision == 0 {
			f.Errorf("%s has %s and %s since %d", a.Path(), a.IPv4, a.IPv6, a.Revision)
		}
		for _, ip := range []netip.Addr{a.IPv4, a.IPv6} {
			if other, taken := seen[ip]; taken {
				f.Errorf("%s and %s both have %s", other, a.Path(), ip)
			}
			seen[ip] = a.Path()
		}
	}
	slices.Sort(got)
	slices.Sort(hosts)
	if !slices.Equal(hosts, got) {
		f.Fatalf("hosts with addresses (-want +got):\n%s", cmp.Diff(hosts, got))
	}
}

func aHostGetsAnAddress(f *given) {
	f.put("shop", "a", "a.example", "B.example")
	f.expect("shop/a.example", "shop/b.example")
}

func onlyThoseWithout(f *given) {
	with := func(name string, change func(*networking.ServiceEntry)) storage.Op {
		c := entry("shop", name)
		change(c.Spec.(*networking.ServiceEntry))
		return storage.Op{Verb: storage.Create, Config: c}
	}
	rule := &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.DestinationRule, Namespace: "shop", Name: "rule"},
		Spec: &networking.DestinationRule{Host: "rule.example"},
	}
	f.apply(
		with("own", func(s *networking.ServiceEntry) { s.Addresses = []string{"10.1.1.1"} }),
		with("none", func(s *networking.ServiceEntry) { s.Resolution = networking.ServiceEntry_NONE }),
		with("pattern", func(s *networking.ServiceEntry) { s.Hosts = []string{"*.example"} }),
		with("dns", func(s *networking.ServiceEntry) { s.Resolution = networking.ServiceEntry_DNS }),
		storage.Op{Verb: storage.Create, Config: rule},
	)
	f.expect("shop/dns.example")
	f.put("shop", "own", "own.example") // it no longer has the address of its own
	f.expect("shop/dns.example", "shop/own.example")
}

func anUpdateKeepsIt(f *given) {
	f.put("shop", "a", "a.example")
	before := f.addresses()
	f.put("shop", "a", "a.example", "b.example")
	f.put("shop", "a", "b.example", "a.example")
	if after := f.addresses(); after["shop/a.example"] != before["shop/a.example"] {
		f.Errorf("%v became %v", before, after)
	}
	f.put("shop", "a", "b.example")
	f.expect("shop/b.example")
}

func entriesShareIt(f *given) {
	f.put("shop", "a", "x.example")
	before := f.addresses()
	f.put("shop", "b", "x.example", "y.example")
	f.apply(remove(entry("shop", "a"), ""))
	f.expect("shop/x.example", "shop/y.example")
	if after := f.addresses(); after["shop/x.example"] != before["shop/x.example"] {
		f.Errorf("%v became %v", before, after)
	}
}

func anotherNamespace(f *given) {
	f.put("shop", "a", "x.example")
	f.put("bank", "a", "x.example")
	f.expect("shop/x.example", "bank/x.example")
}

func itGoesWithTheLast(f *given) {
	f.put("shop", "a", "x.example")
	f.put("shop", "b", "x.example")
	f.apply(remove(entry("shop", "a"), ""))
	f.expect("shop/x.example")
	f.apply(remove(entry("shop", "b"), ""))
	f.expect()
}

func itComesBack(f *given) {
	for i := range 50 {
		f.put("shop", fmt.Sprintf("e%d", i))
	}
	before := f.addresses()
	f.apply(remove(entry("shop", "e7"), ""), remove(entry("shop", "e9"), ""))
	f.put("shop", "other", "other.example")
	f.apply(storage.Op{Verb: storage.Restore, Config: entry("shop", "e9")}, storage.Op{Verb: storage.Restore, Config: entry("shop", "e7")})
	after := f.addresses()
	for _, host := range []string{"shop/e7.example", "shop/e9.example"} {
		if after[host] != before[host] {
			f.Errorf("%s had %s and came back with %s", host, before[host], after[host])
		}
	}
}

func theLabel(f *given) {
	f.put("shop", "a", "a.example")
	before := f.addresses()
	off := entry("shop", "a", "a.example")
	off.Labels[schema.AutoAllocate] = "False"
	f.apply(storage.Op{Verb: storage.Put, Config: off})
	f.expect()
	f.put("shop", "a", "a.example")
	if d := cmp.Diff(before, f.addresses()); d != "" {
		f.Errorf("switched off and on (-before +after):\n%s", d)
	}
}

func aBatchMoves(f *given) {
	f.put("shop", "a", "x.example")
	before := f.addresses()
	f.apply(remove(entry("shop", "a"), ""), storage.Op{Verb: storage.Create, Config: entry("shop", "b", "x.example")})
	if d := cmp.Diff(before, f.addresses()); d != "" {
		f.Errorf("moved within a batch (-before +after):\n%s", d)
	}
	f.apply(remove(entry("shop", "b"), ""))
	f.expect()
}

func notGivenAtOnce(f *given) {
	f.put("shop", "a", "a.example")
	f.put("shop", "b", "b.example")
	freed := f.addresses()["shop/a.example"]
	f.apply(remove(entry("shop", "a"), ""))
	f.put("shop", "c", "c.example")
	f.expect("shop/b.example") // callers of a may still use its address
	f.clock.pass(address.Grace)
	f.put("shop", "d", "d.example")
	f.expect("shop/b.example", "shop/d.example")
	if got := f.addresses()["shop/d.example"]; got != freed {
		f.Errorf("d has %s, the free one is %s", got, freed)
	}
}

func anExhaustedRange(f *given) {
	f.apply(
		storage.Op{Verb: storage.Create, Config: entry("shop", "a")},
		storage.Op{Verb: storage.Create, Config: entry("shop", "b")},
		storage.Op{Verb: storage.Create, Config: entry("shop", "c")},
	)
	if n := len(f.addresses()); n != 2 {
		f.Errorf("%d hosts have one of the two addresses", n)
	}
	if _, err := f.Stores[0].Get(f.Context(), schema.ServiceEntry, "c", "shop"); err != nil {
		f.Errorf("the one without: %v", err)
	}
}

func everyAddress(f *given) {
	var hosts []string
	for i := range f.ranges.Size() {
		f.put("shop", fmt.Sprintf("e%d", i))
		hosts = append(hosts, fmt.Sprintf("shop/e%d.example", i))
	}
	f.expect(hosts...)
}

// numbered returns n hosts with a prefix, and the same as expect takes them, with their
// namespace.
func numbered(n int, prefix string) (hosts, namespaced []string) {
	for i := range n {
		hosts = append(hosts, fmt.Sprintf("%s%d.example", prefix, i))
		namespaced = append(namespaced, "shop/"+hosts[i])
	}
	return hosts, namespaced
}

func replaced(f *given) {
	for _, prefix := range []string{"a", "b"} {
		hosts, namespaced := numbered(400, prefix)
		f.put("shop", "large", hosts...)
		f.expect(namespaced...)
	}
	f.apply(remove(entry("shop", "large"), ""))
	f.expect()
}

// tooSmall gives one object all addresses of a range, and then another one, once they are
// free again.
func tooSmall(f *given) {
	hosts, _ := numbered(500, "a")
	f.put("shop", "large", hosts...)
	if n := len(f.addresses()); n != f.ranges.Size() {
		f.Errorf("%d of 500 hosts have one of the %d addresses", n, f.ranges.Size())
	}
	f.apply(remove(entry("shop", "large"), ""))
	f.clock.pass(address.Grace)
	hosts, namespaced := numbered(f.ranges.Size(), "b")
	f.put("shop", "next", hosts...)
	f.expect(namespaced...)
}

// manyWriters lets writers create hosts of their own and a shared one at once.
func manyWriters(f *given) {
	const writers, each = 4, 20
	var running sync.WaitGroup
	hosts := []string{"shop/all.example"}
	for w := range writers {
		store := f.Stores[w%len(f.Stores)]
		for i := range each {
			hosts = append(hosts, fmt.Sprintf("shop/w%d-%d.example", w, i))
		}
		running.Go(func() {
			for i := range each {
				name := fmt.Sprintf("w%d-%d", w, i)
				if _, err := store.Create(f.Context(), entry("shop", name, name+".example", "all.example")); err != nil {
					f.Errorf("create %s: %v", name, err)
				}
			}
		})
	}
	running.Wait()
	f.expect(hosts...)
}

// anyOrder applies random batches to all stores at once, and after each step compares the
// addresses with the objects.
func anyOrder(f *given) {
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 0))
		for range 40 {
			var running sync.WaitGroup
			for _, store := range f.Stores {
				batch := randomBatch(random)
				running.Go(func() {
					_, _, err := store.Apply(f.Context(), batch)
					if err != nil && !errors.Is(err, storage.ErrNotFound) {
						f.Errorf("seed %d: %v", seed, err)
					}
				})
			}
			running.Wait()
			f.clock.pass(time.Duration(random.IntN(5)) * time.Minute)
			f.expectAsObjects(seed)
		}
	}
}

func randomBatch(random *rand.Rand) (batch []storage.Op) {
	for _, i := range random.Perm(6)[:1+random.IntN(3)] {
		name := fmt.Sprintf("e%d", i)
		if random.IntN(3) == 0 {
			batch = append(batch, remove(entry("shop", name), ""))
			continue
		}
		var hosts []string
		for _, h := range random.Perm(10)[:1+random.IntN(3)] {
			hosts = append(hosts, fmt.Sprintf("h%d.example", h))
		}
		object := entry("shop", name, hosts...)
		if random.IntN(5) == 0 {
			object.Labels[schema.AutoAllocate] = "false"
		}
		batch = append(batch, storage.Op{Verb: []storage.Verb{storage.Put, storage.Restore}[random.IntN(2)], Config: object})
	}
	return batch
}

// expectAsObjects checks that the hosts of all objects, and no others, have addresses.
func (f *given) expectAsObjects(seed uint64) {
	f.Helper()
	objects, err := f.Stores[0].List(f.Context(), schema.ServiceEntry, "")
	if err != nil {
		f.Fatal(err)
	}
	want := map[string]bool{}
	for _, object := range objects {
		for _, host := range address.Hosts(object) {
			want[address.Path(object.Namespace, host)] = true
		}
	}
	hosts := make([]string, 0, len(want))
	for host := range want {
		hosts = append(hosts, host)
	}
	f.expect(hosts...)
	if f.Failed() {
		f.Fatalf("seed %d", seed)
	}
}
