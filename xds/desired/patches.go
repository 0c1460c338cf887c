package desired

import (
	"slices"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/desired/memo"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// maxFailedOn bounds the resources that are named of those that a patch failed on.
const maxFailedOn = 3

// FailedPatches returns the patches of EnvoyFilters that could not be applied to resources of the
// members, in order.
func (gs *Groups) FailedPatches() (out []status.FailedPatch) {
	for p, on := range gs.memo.Uses.FailedPatches {
		one := status.FailedPatch{Filter: p.Filter.Path(), Index: p.Index, Message: p.Err, Count: len(on)}
		for _, id := range on[:min(len(on), maxFailedOn)] {
			one.Resources = append(one.Resources, gs.nameOf(id))
		}
		out = append(out, one)
	}
	return out
}

// nameOf returns the name of a resource behind the name of its type.
func (gs *Groups) nameOf(id memo.ResourceID) string {
	if i := slices.Index(gs.urls, id.TypeURL); i >= 0 {
		return gs.types[i].Name + " " + id.Name
	}
	return id.Name
}

// IdlePatches returns the patches of the EnvoyFilters of a context that match nothing in the
// resources of the members, in order. If not all members have come to the context, those count that
// were idle before, as before has them. The cost follows the number of patches.
func (gs *Groups) IdlePatches(push *mesh.PushContext, settled bool, before []status.IdlePatch) (out []status.IdlePatch) {
	for object, patches := range push.EnvoyFilters() {
		key := object.Key()
		for _, p := range patches {
			one := status.IdlePatch{Filter: key.Path(), Version: object.ResourceVersion, Index: p.Index}
			if !gs.memo.Uses.Matched(key, p.Index) && (settled || slices.Contains(before, one)) {
				out = append(out, one)
			}
		}
	}
	return out
}
