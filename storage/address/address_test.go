package address_test

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Package storetest tests the stores that allocate addresses.

func entry(name string, spec *networking.ServiceEntry) *config.Config {
	return &config.Config{Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name}, Spec: spec}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec  *networking.ServiceEntry
		label string
		want  []string
	}{
		"STATIC, sorted, each once": {&networking.ServiceEntry{Hosts: []string{"b", "A", "a"}, Resolution: networking.ServiceEntry_STATIC}, "", []string{"a", "b"}},
		"DNS":                       {&networking.ServiceEntry{Hosts: []string{"a"}, Resolution: networking.ServiceEntry_DNS}, "", []string{"a"}},
		"DNS_ROUND_ROBIN":           {&networking.ServiceEntry{Hosts: []string{"a"}, Resolution: networking.ServiceEntry_DNS_ROUND_ROBIN}, "", []string{"a"}},
		"NONE":                      {&networking.ServiceEntry{Hosts: []string{"a"}}, "", nil},
		"own addresses":             {&networking.ServiceEntry{Hosts: []string{"a"}, Addresses: []string{"10.0.0.1"}, Resolution: networking.ServiceEntry_STATIC}, "", nil},
		"patterns":                  {&networking.ServiceEntry{Hosts: []string{"*.a", "a", "*"}, Resolution: networking.ServiceEntry_STATIC}, "", []string{"a"}},
		"switched off":              {&networking.ServiceEntry{Hosts: []string{"a"}, Resolution: networking.ServiceEntry_STATIC}, "FALSE", nil},
		"switched on":               {&networking.ServiceEntry{Hosts: []string{"a"}, Resolution: networking.ServiceEntry_STATIC}, "true", []string{"a"}},
		"no form of a key":          {&networking.ServiceEntry{Hosts: []string{"", "a/b"}, Resolution: networking.ServiceEntry_STATIC}, "", nil},
	} {
		c.spec.Endpoints = []*networking.WorkloadEntry{{Address: "10.0.0.9"}}
		object := entry("x", c.spec)
		if c.label != "" {
			object.Labels = map[string]string{schema.AutoAllocate: c.label}
		}
		if d := cmp.Diff(c.want, address.Hosts(object)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		encoded, err := anypb.New(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		object.Spec = encoded
		if d := cmp.Diff(c.want, address.Hosts(object)); d != "" {
			t.Errorf("%s, encoded (-want +got):\n%s", name, d)
		}
	}
	if address.Hosts(nil) != nil || address.Hosts(&config.Config{Meta: config.Meta{GroupVersionKind: schema.ServiceEntry}}) != nil {
		t.Error("no object has hosts")
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for text, sound := range map[string]bool{
		"240.240.0.0/16": true, "10.0.0.0/8": true, "10.0.0.0/30": true, "10.0.0.0/31": false, "0.0.0.0/0": false, "2001:2::/48": false,
	} {
		if err := address.CheckIPv4(netip.MustParsePrefix(text)); (err == nil) != sound {
			t.Errorf("IPv4 range %s: %v", text, err)
		}
	}
	for text, sound := range map[string]bool{"2001:2::/48": true, "fd00::/96": true, "fd00::/97": false, "10.0.0.0/8": false, "::ffff:10.0.0.0/100": false} {
		if err := address.CheckIPv6(netip.MustParsePrefix(text)); (err == nil) != sound {
			t.Errorf("IPv6 range %s: %v", text, err)
		}
	}
	if got := address.DefaultRanges().IPv6For(netip.MustParseAddr("240.240.1.2")).String(); got != "2001:2::f0f0:102" {
		t.Errorf("IPv6 of 240.240.1.2 is %s", got)
	}
	small := address.Ranges{IPv4: netip.MustParsePrefix("10.0.0.8/29"), IPv6: netip.MustParsePrefix("fd00::/96")}
	seen := map[string]bool{}
	for i := range 200 {
		seen[small.Probe(address.Key{Namespace: "a", Host: fmt.Sprint(i)}, i).String()] = true
	}
	for i := 9; i <= 14; i++ {
		if !seen[fmt.Sprintf("10.0.0.%d", i)] {
			t.Errorf("10.0.0.%d is never tried", i)
		}
		delete(seen, fmt.Sprintf("10.0.0.%d", i))
	}
	if len(seen) != 0 {
		t.Errorf("addresses beside the range are tried: %v", seen)
	}
}

// partial is a view that knows only what an earlier decision asked for.
type partial struct {
	holdings     map[address.Key]*address.Holding
	slots        map[netip.Addr]*address.Slot
	knownHosts   map[address.Key]bool
	knownSlots   map[netip.Addr]bool
	all          bool
	rounds, asks int

	questions, walks int // calls of Holding, and iterations over all slots
}

func (p *partial) Holding(k address.Key) (*address.Holding, bool) {
	p.questions++
	return p.holdings[k], p.knownHosts[k]
}

func (p *partial) Slot(a netip.Addr) (*address.Slot, bool) {
	return p.slots[a], p.all || p.knownSlots[a]
}

func (p *partial) Slots() (iter.Seq2[netip.Addr, *address.Slot], bool) {
	return func(yield func(netip.Addr, *address.Slot) bool) {
		p.walks++
		for a, s := range p.slots {
			if !yield(a, s) {
				return
			}
		}
	}, p.all
}

// decide repeats the decision until the view knows enough.
func (p *partial) decide(r address.Ranges, claims []address.Claim, now time.Time) *address.Decision {
	for {
		d, err := r.Decide(context.Background(), claims, p, now)
		if err != nil {
			panic(err) // the context does not end
		}
		if d.Complete() {
			return d
		}
		p.rounds++
		for _, k := range d.Unknown.Hosts {
			p.knownHosts[k] = true
			p.asks++
		}
		for _, a := range d.Unknown.Slots {
			p.knownSlots[a] = true
			p.asks++
		}
		p.all = p.all || d.AllSlots
	}
}

func newPartial() *partial {
	return &partial{
		holdings: map[address.Key]*address.Holding{}, slots: map[netip.Addr]*address.Slot{},
		knownHosts: map[address.Key]bool{}, knownSlots: map[netip.Addr]bool{},
	}
}

// TestAViewIsAskedForWhatItTakes: a decision looks at the host and at Probes addresses, and
// at all addresses only if none of these will do.
func TestAViewIsAskedForWhatItTakes(t *testing.T) {
	t.Parallel()
	now, ranges, k := time.Now(), address.DefaultRanges(), address.Key{Namespace: "shop", Host: "a.example"}
	claims := []address.Claim{{Key: k, Add: []string{"a"}}}
	view := newPartial()
	d := view.decide(ranges, claims, now)
	if len(d.Changes) != 1 || d.Changes[0].IPv4 != ranges.Probe(k, 0) || view.rounds != 2 || view.asks != 1+address.Probes {
		t.Errorf("%+v after %d questions in %d rounds", d.Changes, view.asks, view.rounds)
	}

	view = newPartial()
	other := &address.Slot{Key: address.Key{Namespace: "shop", Host: "other"}}
	for i := range address.Probes {
		view.slots[ranges.Probe(k, i)] = other
	}
	d = view.decide(ranges, claims, now)
	if len(d.Changes) != 1 || view.slots[d.Changes[0].IPv4] != nil || !view.all {
		t.Errorf("%+v where all of the first addresses are taken", d.Changes)
	}
}

// TestTheLongestFreeIsTakenFirst: if every address was used, hosts get the one that is free
// for longest, and none within its grace.
func TestTheLongestFreeIsTakenFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ranges := address.Ranges{IPv4: netip.MustParsePrefix("10.0.0.0/29"), IPv6: netip.MustParsePrefix("fd00::/96")}
	view := newPartial()
	for i := 1; i <= 6; i++ {
		ipv4 := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		view.slots[ipv4] = &address.Slot{
			Key: address.Key{Namespace: "shop", Host: fmt.Sprint(i)}, Freed: now.Add(-address.Grace).Add(time.Duration(4-i) * time.Second),
		}
	}
	var given []string
	var claims []address.Claim
	for _, host := range []string{"p", "q", "r", "s"} {
		claims = append(claims, address.Claim{Key: address.Key{Namespace: "shop", Host: host}, Add: []string{"a"}})
	}
	d := view.decide(ranges, claims, now)
	for _, change := range d.Changes {
		given = append(given, change.IPv4.String())
	}
	if !slices.Equal(given, []string{"10.0.0.6", "10.0.0.5", "10.0.0.4"}) || len(d.Without) != 1 {
		t.Errorf("given are %v, without are %v", given, d.Without)
	}
}

// crowded returns a view of a range with only left unused addresses.
func crowded(ranges address.Ranges, left int) *partial {
	view := newPartial()
	view.all = true
	first := ranges.IPv4.Addr().Next()
	for i := range ranges.Size() - left {
		view.slots[first] = &address.Slot{Key: address.Key{Namespace: "other", Host: fmt.Sprint(i)}}
		first = first.Next()
	}
	return view
}

func newcomers(n int) (claims []address.Claim) {
	for i := range n {
		k := address.Key{Namespace: "shop", Host: fmt.Sprintf("h%d.example", i)}
		claims = append(claims, address.Claim{Key: k, Add: []string{"a"}})
	}
	return claims
}

// markWithoutAddress makes the view know that the hosts of claims have no address.
func (p *partial) markWithoutAddress(claims []address.Claim) {
	for _, claim := range claims {
		p.knownHosts[claim.Key] = true
	}
}

// TestAFullRangeIsLookedThroughOnce: however many hosts need an address.
func TestAFullRangeIsLookedThroughOnce(t *testing.T) {
	t.Parallel()
	ranges := address.DefaultRanges()
	view := crowded(ranges, 65)
	claims := newcomers(1000)
	view.markWithoutAddress(claims)
	d := view.decide(ranges, claims, time.Now())
	given := map[netip.Addr]bool{}
	for _, change := range d.Changes {
		if given[change.IPv4] || view.slots[change.IPv4] != nil {
			t.Errorf("%s has %s, which is another's", change.Key, change.IPv4)
		}
		given[change.IPv4] = true
	}
	if len(given) != 65 || len(d.Without) != 935 {
		t.Errorf("%d hosts have one of 65 addresses, %d have none", len(given), len(d.Without))
	}
	if view.walks != 1 {
		t.Errorf("all addresses were looked at %d times", view.walks)
	}
}

// leaving is a context that ends after a number of calls of Err.
type leaving struct {
	context.Context
	asked int
}

func (c *leaving) Err() error {
	if c.asked--; c.asked < 0 {
		return context.Canceled
	}
	return nil
}

// TestWhoLeavesEndsADecision: Decide returns soon after its context ends, however many
// claims are left.
func TestWhoLeavesEndsADecision(t *testing.T) {
	t.Parallel()
	view := newPartial()
	ctx := &leaving{Context: t.Context(), asked: 2}
	if d, err := address.DefaultRanges().Decide(ctx, newcomers(100_000), view, time.Now()); err == nil {
		t.Fatalf("it went on to the end, with %d questions", len(d.Unknown.Hosts))
	}
	if view.questions > 1000 {
		t.Errorf("%d hosts were looked at", view.questions)
	}
}

func BenchmarkDecide(b *testing.B) {
	ranges := address.DefaultRanges()
	for name, left := range map[string]int{"empty": ranges.Size(), "full=99.9%": ranges.Size() / 1000} {
		for _, n := range []int{1, 1000, 4000} {
			b.Run(fmt.Sprintf("range=%s/hosts=%d", name, n), func(b *testing.B) {
				view, claims := crowded(ranges, left), newcomers(n)
				view.markWithoutAddress(claims)
				now := time.Now()
				b.ReportAllocs()
				for b.Loop() {
					view.decide(ranges, claims, now)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/host")
			})
		}
	}
}
