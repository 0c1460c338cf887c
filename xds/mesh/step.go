package mesh

import (
	"hash/maphash"
	"slices"

	"github.com/portolan-mesh/portolan/storage/pmap"
)

// step is in which rows a context differs from the one that it was made from. It is
// found once for all who go from one to the other, and answers them whether they
// need to look at all.
type step struct {
	self, after *identity // after is nil where what differs is not told by rows
	rows        Rows
	addresses   []string // at which endpoints came, went or changed
}

// identity tells contexts apart without keeping the older alive.
type identity struct{ _ byte }

// stepTo finds the step from one context to the next, of one mesh configuration.
func stepTo(from, to *PushContext) step {
	s := step{self: &identity{}, after: from.step.self}
	add := func(k RowKey) bool {
		s.rows = append(s.rows, k.sum())
		return true
	}
	for c := range pmap.Diff(from.instances, to.instances) {
		s.addresses = append(s.addresses, c.Key)
		add(RowKey{Instances, c.Key})
	}
	_ = changedKeys(Services, from.inputs.Services, to.inputs.Services, add) &&
		changedKeys(Gateways, from.gateways, to.gateways, add)
	Diff(from, to).Keys()(add)
	slices.Sort(s.rows)
	s.rows = slices.Compact(s.rows)
	return s
}

// Rows is a set of rows, by sums of their keys: two rows may be taken for one.
type Rows []uint64 // in order

// seed is that of the sums.
var seed = maphash.MakeSeed()

func (k RowKey) sum() uint64 { return maphash.Comparable(seed, k) }

// RowsOf are the rows of some questions, those apart that a class or a workload
// answers by what it is.
func RowsOf(questions ...[]Recorded) Rows {
	var out Rows
	for _, some := range questions {
		for _, r := range some {
			if r.Read.Row.Table != Self && r.Read.Row.Table != MeshConfig {
				out = append(out, r.Read.Row.sum())
			}
		}
	}
	slices.Sort(out)
	return slices.Clip(slices.Compact(out))
}

// Meets says whether the sets have a row in common, or may have.
func (r Rows) Meets(other Rows) bool {
	few, many := r, other
	if len(few) > len(many) {
		few, many = many, few
	}
	return slices.ContainsFunc(few, func(sum uint64) bool {
		_, found := slices.BinarySearch(many, sum)
		return found
	})
}

// Since are the rows in which p differs from an earlier context. It is false where p
// was not made from that one, or they have not one mesh configuration.
func (p *PushContext) Since(from *PushContext) (Rows, bool) {
	if from == nil || p.step.after == nil || p.step.after != from.step.self {
		return nil, false
	}
	return p.step.rows, true
}

// fewAddresses are as many as are searched faster than they are looked up.
const fewAddresses = 8

// moved says whether the endpoints at some addresses are others than in an earlier
// context.
func (p *PushContext) moved(from *PushContext, addresses []string) bool {
	_, known := p.Since(from)
	if known && len(p.step.addresses) == 0 {
		return false
	}
	return slices.ContainsFunc(addresses, func(address string) bool {
		if known && len(p.step.addresses) <= fewAddresses {
			return slices.Contains(p.step.addresses, addressKey(address))
		}
		return from.Instances(address) != p.Instances(address)
	})
}
