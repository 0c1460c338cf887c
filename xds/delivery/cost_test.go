package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// rig is a client that has everything of a mesh of n clusters, each with endpoints and a
// virtual host that sends traffic to it.
type rig struct {
	tb        testing.TB
	sequencer *delivery.Sequencer
	sets      sets
	now       time.Time
	serial    int
}

func newRig(tb testing.TB, n int) *rig {
	lines := []string{"LDS l: >r", "RDS r: 1"}
	var names []string
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		names = append(names, name)
		lines = append(lines, fmt.Sprintf("CDS %[1]s: >%[1]s", name), fmt.Sprintf("EDS %s: 1", name),
			fmt.Sprintf("VHDS r/%[1]s: @%[1]s", name))
	}
	r := &rig{tb: tb, sequencer: delivery.New(types(), protocol.Delta, limits), sets: world(tb, lines...), now: time.Unix(1000, 0)}
	r.sequencer.SetDesired(r.sets.of, 1)
	for typeURL, names := range map[string][]string{cds: nil, eds: names, lds: nil, rds: {"r"}, vhds: nil} {
		r.sequencer.Request(typeURL, protocol.Request{Subscribe: protocoltest.NameSet(names...)}, r.now)
	}
	r.settle()
	return r
}

// settle makes the client acknowledge everything, and returns how many resources were
// sent and removed.
func (r *rig) settle() int {
	total := 0
	for more := true; more; {
		more = false
		for typeURL, response := range r.sequencer.Responses(r.now) {
			total += len(response.Changed) + len(response.Withdrawn)
			r.sequencer.Request(typeURL, protocol.Request{Nonce: response.Nonce}, r.now)
			more = true
		}
	}
	return total
}

// takes offers the client the present sets. It must take n resources.
func (r *rig) takes(n int) {
	r.sequencer.SetDesired(r.sets.of, int64(r.serial))
	if got := r.settle(); got != n {
		r.tb.Fatalf("%d resources were sent or withdrawn, not %d", got, n)
	}
}

func (r *rig) set(typeURL, name, content string) *resource.Resource {
	built := made(r.tb, typeURL, name, content)
	r.sets[typeURL] = r.sets[typeURL].Set(name, built)
	return built
}

// endpoint changes the endpoints of one cluster.
func (r *rig) endpoint() {
	r.serial++
	r.set(eds, "c7", fmt.Sprint(r.serial))
	r.takes(1)
}

// flip adds a cluster and moves a virtual host to it, and then removes the cluster, after
// the virtual host has moved back.
func (r *rig) flip() {
	r.serial++
	r.set(cds, "new", fmt.Sprint(r.serial))
	r.set(vhds, "r/c7", fmt.Sprintf("@new %d", r.serial))
	r.takes(2)
	r.sets[cds] = r.sets[cds].Delete("new")
	r.set(vhds, "r/c7", fmt.Sprintf("@c7 %d", r.serial))
	r.takes(2)
}

// TestTheCostFollowsTheChange: one change allocates as much in a small mesh as in a large
// one.
func TestTheCostFollowsTheChange(t *testing.T) {
	small, large := newRig(t, 100), newRig(t, 10_000)
	for name, change := range map[string]func(*rig){"endpoint": (*rig).endpoint, "flip": (*rig).flip} {
		few := testing.AllocsPerRun(100, func() { change(small) })
		many := testing.AllocsPerRun(100, func() { change(large) })
		t.Logf("%s: %.0f allocations among 100 clusters, %.0f among 10,000", name, few, many)
		if many > 2*few {
			t.Errorf("%s: %.0f allocations among 100 clusters, but %.0f among 10,000", name, few, many)
		}
	}
}

// BenchmarkChange measures one change on its way to one client.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		r := newRig(b, n)
		for name, change := range map[string]func(*rig){"endpoint": (*rig).endpoint, "flip": (*rig).flip} {
			b.Run(fmt.Sprintf("%s/clusters=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					change(r)
				}
			})
		}
		b.Run(fmt.Sprintf("quiet/clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.settle()
			}
		})
	}
}
