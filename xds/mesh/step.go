package mesh

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// step holds the rows in which a context differs from its predecessor. It is computed
// once for all readers that go from one to the other.
type step struct {
	self, after *identity // after is nil if the rows do not show the whole difference
	sums        Rows      // of all rows that differ
	tracked     []RowKey  // those that Delta.Keys reports
	addresses   []RowKey  // rows of Instances
}

// identity distinguishes contexts without keeping the older one alive.
type identity struct{ _ byte }

// stepTo computes the step from one context to the next. If the mesh configuration
// changed, rows do not show the whole difference, and the step has none.
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

// Rows is a set of rows, as hashes of their keys. Two rows may collide.
type Rows []uint64 // in order

// seed is the seed of the hashes.
var seed = maphash.MakeSeed()

func (k RowKey) sum() uint64 { return maphash.Comparable(seed, k) }

// RowsOf returns the rows that the answers to queries follow from, for this view. A resource
// that workloads share was built by the queries of one of them, so what the view says about
// itself counts by its own rows. MeshConfig has none.
func (v *View) RowsOf(queries ...[]Dependency) Rows {
	var out Rows
	for _, some := range queries {
		for _, d := range some {
			switch {
			case d.Query.Row == RowKey{Self, selfPolicies}:
				for row := range v.rowsOfPolicies() {
					out = append(out, row.sum())
				}
			case d.Query.Row.Table != Self && d.Query.Row.Table != MeshConfig:
				out = append(out, d.Query.Row.sum())
				if d.Query.Row.Table == Patches { // the labels of the workload decide which are for it
					for row := range v.ownInstances() {
						out = append(out, row.sum())
					}
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Clip(slices.Compact(out))
}

// ownInstances iterates over the rows from which the labels of the workload follow.
func (v *View) ownInstances() iter.Seq[RowKey] {
	return func(yield func(RowKey) bool) {
		for _, ip := range strings.Fields(v.ips()) {
			if !yield(RowKey{Instances, service.AddressKey(ip)}) {
				return
			}
		}
	}
}

// Meets says whether the sets may have a row in common; false is certain.
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

// Since returns the rows in which p differs from an earlier context. It returns false if
// from is not p's predecessor, or their mesh configurations differ.
func (p *PushContext) Since(from *PushContext) (Rows, bool) {
	if from == nil || p.step.after == nil || p.step.after != from.step.self {
		return nil, false
	}
	return p.step.sums, true
}

// changedSince returns the keys of the tracked rows in which p differs from an earlier
// context, and false where Since does.
func (p *PushContext) changedSince(from *PushContext) ([]RowKey, bool) {
	_, known := p.Since(from)
	return p.step.tracked, known
}

// fewAddresses is the number of changed rows up to which a linear search beats two
// lookups.
const fewAddresses = 8

// endpointsChanged says whether the endpoints at any of the addresses changed since an earlier
// context.
func (p *PushContext) endpointsChanged(from *PushContext, addresses []string) bool {
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
