package mesh

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// step holds the rows in which a context differs from its predecessor. It is computed
// once for all that go from one to the other.
type step struct {
	self, after *identity // after is nil where what differs is not told by rows
	sums        Rows      // of all rows that differ
	tracked     []RowKey  // those that stand in a Delta
	addresses   []RowKey  // rows of Instances
}

// identity tells contexts apart without keeping the older alive.
type identity struct{ _ byte }

// stepTo finds the step from one context to the next. Rows do not tell what a new
// mesh configuration changes.
func stepTo(from, to *PushContext) step {
	s := step{self: &identity{}}
	if from.mesh != to.mesh {
		return s
	}
	s.after = from.step.self
	changed := changedRows(from, to, firstAsked, nil) // in the order of the tables
	start := func(t Table) int {
		at, _ := slices.BinarySearchFunc(changed, t, func(k RowKey, t Table) int { return cmp.Compare(k.Table, t) })
		return at
	}
	s.tracked, s.addresses = changed[start(firstTracked):], changed[start(Instances):start(Instances+1)]
	s.sums = make(Rows, len(changed))
	for i, row := range changed {
		s.sums[i] = row.sum()
	}
	slices.Sort(s.sums)
	s.sums = slices.Compact(s.sums)
	return s
}

// Rows is a set of rows, by sums of their keys: two rows may be taken for one.
type Rows []uint64 // in order

// seed keys the sums.
var seed = maphash.MakeSeed()

func (k RowKey) sum() uint64 { return maphash.Comparable(seed, k) }

// RowsOf returns the rows of some queries. It leaves out rows that a class or a
// workload answers by its own properties.
func RowsOf(queries ...[]Dependency) Rows {
	var out Rows
	for _, some := range queries {
		for _, d := range some {
			if d.Query.Row.Table != Self && d.Query.Row.Table != MeshConfig {
				out = append(out, d.Query.Row.sum())
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
	return p.step.sums, true
}

// changedSince are the keys of tracked rows in which p differs from an earlier
// context; false as of Since.
func (p *PushContext) changedSince(from *PushContext) ([]RowKey, bool) {
	_, known := p.Since(from)
	return p.step.tracked, known
}

// fewAddresses are as many as are searched faster than they are looked up.
const fewAddresses = 8

// moved says whether the endpoints at some addresses are others than in an earlier
// context.
func (p *PushContext) moved(from *PushContext, addresses []string) bool {
	_, known := p.Since(from)
	changed := p.step.addresses
	if known && len(changed) == 0 {
		return false
	}
	return slices.ContainsFunc(addresses, func(address string) bool {
		if known && len(changed) <= fewAddresses {
			return slices.Contains(changed, RowKey{Instances, service.AddressKey(address)})
		}
		return from.Instances(address) != p.Instances(address)
	})
}
