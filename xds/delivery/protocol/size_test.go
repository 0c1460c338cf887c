package protocol_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func many(tb testing.TB, n int) (resource.Set, []string) {
	tb.Helper()
	var names []string
	set := resource.FromSorted(func(yield func(string, *resource.Resource) bool) {
		for i := range n {
			name := fmt.Sprintf("outbound|80||service-%05d.default.mesh.internal", i)
			names = append(names, name)
			if !yield(name, res(tb, name, name)) {
				return
			}
		}
	})
	return set, names
}

// sync makes a subscription send its first response, with everything, and get the ACK.
func sync(tb testing.TB, s *protocol.Subscription, offered resource.Set, q protocol.Request) {
	tb.Helper()
	s.SetDesired(offered, 1)
	s.Request(q)
	r, ok := s.Next(protocol.Additions())
	if !ok || len(r.Resources) != offered.Len() {
		tb.Fatal("the first response has not all there is")
	}
	if a := s.Request(protocol.Request{Nonce: r.Nonce, Names: q.Names}); a.ACK == nil {
		tb.Fatal("it is not acknowledged")
	}
}

// requests returns first requests for all resources, by how they ask: by the wildcard or
// by name, in delta or in state of the world.
func requests(table *nameset.Table, names []string) map[string]protocol.Request {
	return map[string]protocol.Request{
		"wildcard": {}, "named": {Subscribe: table.Of(names)}, "named, world": {Names: table.Of(names)},
	}
}

func typeFor(how string, table *nameset.Table) (protocol.Type, protocol.Variant) {
	typ, variant := protocol.Type{URL: how, Full: how == "wildcard", Names: table}, protocol.Delta
	if how == "named, world" {
		variant = protocol.StateOfTheWorld
	}
	return typ, variant
}

// TestASubscriptionInStepHoldsNothingByName: subscriptions with the same requests and the same
// resources take next to no memory of their own, also after a change.
func TestASubscriptionInStepHoldsNothingByName(t *testing.T) {
	const subscriptions, limit = 100, 1 << 10
	offered, names := many(t, 6_000)
	changed := offered.Set(names[17], res(t, names[17], "changed"))
	table := nameset.NewTable()
	for how := range requests(table, names) {
		typ, variant := typeFor(how, table)
		run := func() []*protocol.Subscription {
			out := make([]*protocol.Subscription, subscriptions)
			for i := range out {
				out[i] = protocol.New(typ, variant)
				q := requests(table, slices.Clone(names))[how]
				sync(t, out[i], offered, q)
				out[i].SetDesired(changed, 2)
				r, _ := take(t, out[i], true, slices.Collect(q.Names.All())...)
				if len(r.Changed) != 1 {
					t.Fatalf("%s: %d resources are sent for one change", how, len(r.Changed))
				}
			}
			return out
		}
		kept := run()[0] // what is shared is there before and after
		before := heap()
		all := run()
		if each := (heap() - before) / subscriptions; each > limit {
			t.Errorf("%s: a subscription holds %d bytes", how, each)
		} else {
			t.Logf("%s: a subscription holds %d bytes", how, each)
		}
		runtime.KeepAlive(all)
		runtime.KeepAlive(kept)
	}
	runtime.KeepAlive(offered)
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestAFirstSyncAllocatesNothingByName: apart from the list of what is sent, the number
// of allocations is the same for any number of resources.
func TestAFirstSyncAllocatesNothingByName(t *testing.T) {
	for _, how := range []string{"wildcard", "named", "named, world"} {
		var counts []float64
		for _, n := range []int{100, 6_000} {
			offered, names := many(t, n)
			table := nameset.NewTable()
			typ, variant := typeFor(how, table)
			q := requests(table, names)[how]
			kept := protocol.New(typ, variant)
			sync(t, kept, offered, q)
			least := math.Inf(1)
			for range 5 { // the table may lose a set to the garbage collector in one of them
				least = min(least, testing.AllocsPerRun(5, func() {
					s := protocol.New(typ, variant)
					s.Resend(names...) // as when their parents were sent before
					sync(t, s, offered, q)
				}))
			}
			counts = append(counts, least)
			runtime.KeepAlive(kept)
		}
		t.Logf("%s: %.0f allocations for 100 resources, %.0f for 6,000", how, counts[0], counts[1])
		if counts[1] > counts[0]+10 {
			t.Errorf("%s: %.0f allocations for 6,000 resources, %.0f for 100", how, counts[1], counts[0])
		}
	}
}

// BenchmarkFirstSync measures the first response of 6,000 resources to a client after
// others, and the answer to a client that states all of them.
func BenchmarkFirstSync(b *testing.B) {
	offered, names := many(b, 6_000)
	stated := map[string]string{}
	for name, r := range offered.All() {
		stated[name] = r.Version
	}
	table := nameset.NewTable()
	bench := func(how string, typ protocol.Type, variant protocol.Variant, f func(*protocol.Subscription)) {
		b.Run(how, func(b *testing.B) {
			kept := protocol.New(typ, variant)
			f(kept)
			b.ReportAllocs()
			for b.Loop() {
				f(protocol.New(typ, variant))
			}
			runtime.KeepAlive(kept)
		})
	}
	for how, q := range requests(table, names) {
		typ, variant := typeFor(how, table)
		bench(how, typ, variant, func(s *protocol.Subscription) { sync(b, s, offered, q) })
	}
	typ, variant := typeFor("named", table)
	bench("reconnect", typ, variant, func(s *protocol.Subscription) {
		s.SetDesired(offered, 1)
		s.Request(protocol.Request{Subscribe: table.Of(names), Initial: protocoltest.Versions(stated)})
		if _, ok := s.Next(protocoltest.Everything()); ok {
			b.Fatal("something is sent")
		}
	})
}

// BenchmarkOneChange measures one changed resource among many, from SetDesired to the
// ACK.
func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{100, 6_000} {
		offered, names := many(b, n)
		table := nameset.NewTable()
		for how, q := range requests(table, names) {
			b.Run(fmt.Sprintf("%s/resources=%d", how, n), func(b *testing.B) {
				typ, variant := typeFor(how, table)
				s := protocol.New(typ, variant)
				sync(b, s, offered, q)
				sets := []resource.Set{offered.Set(names[7], res(b, names[7], "one")), offered.Set(names[7], res(b, names[7], "other"))}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s.SetDesired(sets[i%2], int64(i))
					r, _ := s.Next(protocoltest.Everything())
					s.Request(protocol.Request{Nonce: r.Nonce, Names: q.Names})
				}
			})
		}
	}
}
