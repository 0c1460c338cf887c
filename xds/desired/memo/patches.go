package memo

import (
	"cmp"
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// patchUses counts what became of patches on the resources in use.
type patchUses struct {
	matched map[patchID]int // the resources that a patch applied to, or could not
	failed  map[FailedPatch]map[ResourceID]int
}

// patchID names a patch by its EnvoyFilter, and its place in that.
type patchID struct {
	filter config.Key
	index  int
}

// FailedPatch is a patch that could not be applied to resources, for one reason.
type FailedPatch struct {
	Filter config.Key
	Index  int // in the configPatches of the EnvoyFilter
	Err    string
}

// ResourceID names a resource.
type ResourceID struct{ TypeURL, Name string }

// count adds delta to the counts of what became of a patch on a resource. It says whether a count
// begins or ends.
func (u *patchUses) count(b *Built, p mesh.PatchNote, delta int) (news bool) {
	if u.matched == nil {
		u.matched, u.failed = map[patchID]int{}, map[FailedPatch]map[ResourceID]int{}
	}
	news = addTo(u.matched, patchID{p.Filter, p.Index}, delta)
	if p.Err == "" {
		return news
	}
	of := FailedPatch{p.Filter, p.Index, p.Err}
	if u.failed[of] == nil {
		u.failed[of] = map[ResourceID]int{}
	}
	news = addTo(u.failed[of], ResourceID{b.typeURL, b.name}, delta) || news
	if len(u.failed[of]) == 0 {
		delete(u.failed, of)
	}
	return news
}

// addTo adds delta to a count, and says whether the count begins or ends.
func addTo[K comparable](counts map[K]int, key K, delta int) bool {
	n := counts[key] + delta
	if n == 0 {
		delete(counts, key)
	} else {
		counts[key] = n
	}
	return n == 0 || n == delta
}

// Matched says whether a patch of an EnvoyFilter, given by its place in that, applied to a resource
// in use, or could not.
func (u *Uses) Matched(filter config.Key, index int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.patches.matched[patchID{filter, index}] > 0
}

// FailedPatches calls yield with each patch that could not be applied to resources in use, and those
// resources, in order.
func (u *Uses) FailedPatches(yield func(FailedPatch, []ResourceID) bool) {
	u.mu.Lock()
	all := make(map[FailedPatch][]ResourceID, len(u.patches.failed))
	for of, resources := range u.patches.failed {
		for id := range resources {
			all[of] = append(all[of], id)
		}
	}
	u.mu.Unlock()
	failed := make([]FailedPatch, 0, len(all))
	for of := range all {
		failed = append(failed, of)
	}
	slices.SortFunc(failed, func(a, b FailedPatch) int {
		return cmp.Or(cmp.Compare(a.Filter.Path(), b.Filter.Path()), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Err, b.Err))
	})
	for _, of := range failed {
		resources := all[of]
		slices.SortFunc(resources, func(a, b ResourceID) int {
			return cmp.Or(cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Name, b.Name))
		})
		if !yield(of, resources) {
			return
		}
	}
}
