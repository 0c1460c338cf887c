package address

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
)

// slotIndex is an index of all slots of a range, for hosts whose first addresses are taken.
// A decision makes it once. Each host then costs next to nothing, also in a range that
// is nearly full.
type slotIndex struct {
	Ranges
	// former holds the last addresses of hosts that have none now.
	former map[Key]netip.Addr
	// past leads from a used place to a later one that may be unused: all places between
	// are used.
	past map[int]int
	// free lists the addresses that another host may get, the one that is free for
	// longest first.
	free []netip.Addr
}

func (d *decider) newSlotIndex(slots iter.Seq2[netip.Addr, *Slot]) *slotIndex {
	type freed struct {
		ipv4 netip.Addr
		slot *Slot
	}
	out := &slotIndex{Ranges: d.Ranges, former: map[Key]netip.Addr{}, past: map[int]int{}}
	var free []freed
	for ipv4, slot := range slots {
		place, own := d.place(ipv4)
		if !own {
			continue
		}
		out.past[place] = place + 1
		if was, several := out.former[slot.Key]; !several || ipv4.Less(was) {
			out.former[slot.Key] = ipv4
		}
		if slot.free(d.now) {
			free = append(free, freed{ipv4, slot})
		}
	}
	slices.SortFunc(free, func(a, b freed) int {
		return cmp.Or(a.slot.Freed.Compare(b.slot.Freed), a.ipv4.Compare(b.ipv4))
	})
	for _, f := range free {
		out.free = append(out.free, f.ipv4)
	}
	return out
}

// unused returns the first address that no host has or had, from a place to the end and
// then from the beginning.
func (r *slotIndex) unused(place int, taken map[netip.Addr]bool) (netip.Addr, bool) {
	for _, from := range []int{place, 0} {
		for at := r.skip(from); at < r.Size(); at = r.skip(at) {
			if ipv4 := r.slot(at); !taken[ipv4] {
				return ipv4, true
			}
			r.past[at] = at + 1
		}
	}
	return netip.Addr{}, false
}

// skip returns the first place at or after place that is not known to be used, and the size
// of the range if there is none. It shortens the path in past, so that the next call takes
// one step.
func (r *slotIndex) skip(place int) int {
	end := place
	for next, used := r.past[end]; used; next, used = r.past[end] {
		end = next
	}
	for place != end {
		next := r.past[place]
		r.past[place], place = end, next
	}
	return end
}

// longestFree takes the address that is free for longest.
func (r *slotIndex) longestFree(taken map[netip.Addr]bool) (netip.Addr, bool) {
	for len(r.free) > 0 {
		ipv4 := r.free[0]
		r.free = r.free[1:]
		if !taken[ipv4] {
			return ipv4, true
		}
	}
	return netip.Addr{}, false
}
