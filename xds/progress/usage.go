package progress

import (
	"slices"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
)

// usage knows the objects in use on any server. It is never modified; the nil usage has
// none.
type usage struct {
	uses  pmap.Map[*status.Use]
	parts [status.UseParts][][]uint64 // of all servers
	// all says that a server has proxies and does not report what they use: any object may
	// be in use.
	all bool
}

// usageOf returns what is in use by some facts. It is last where nothing has changed
// since then.
func usageOf(facts *statuses.Facts, last *usage) *usage {
	all := false
	for r := range facts.Replicas.Values() {
		all = all || r.Proxies > 0 && !r.ReportsUse
	}
	if last != nil && last.uses == facts.Uses && last.all == all {
		return last
	}
	u := &usage{uses: facts.Uses, all: all}
	for use := range facts.Uses.Values() {
		u.parts[use.Part] = append(u.parts[use.Part], use.Objects)
	}
	return u
}

// has says whether an object is in use.
func (u *usage) has(key config.Key) bool { return u != nil && u.hasID(status.ObjectID(key)) }

func (u *usage) hasID(id uint64) bool {
	return u.all || slices.ContainsFunc(u.parts[status.UsePart(id)], func(ids []uint64) bool {
		_, found := slices.BinarySearch(ids, id)
		return found
	})
}

// changedSince returns the ids of the objects that are in use in one of two usages alone.
// It returns false if it is not known which.
func (u *usage) changedSince(last *usage) (ids map[uint64]bool, known bool) {
	ids = map[uint64]bool{}
	if last == nil || u.all != last.all {
		return ids, false
	}
	for c := range pmap.Diff(last.uses, u.uses) {
		for _, side := range []*status.Use{c.Old, c.New} {
			if side == nil {
				continue
			}
			for _, id := range side.Objects {
				if u.hasID(id) != last.hasID(id) {
					ids[id] = true
				}
			}
		}
	}
	return ids, true
}
