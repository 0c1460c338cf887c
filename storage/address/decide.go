package address

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

const (
	// Probes is how many addresses are looked at for a host before all are.
	Probes = 8
	// Grace is how long an address that became free is no other host's, since
	// proxies and name servers may still use it.
	Grace = 10 * time.Minute
)

// Holding is what is kept of a host that has an address. It is never modified.
type Holding struct {
	IPv4, IPv6 netip.Addr
	// Owners are the ServiceEntries that need it, in order.
	Owners []string
}

// Slot is what is kept of an IPv4 address that a host has or had.
type Slot struct {
	Key
	// Freed is when it became free, zero while it is not.
	Freed time.Time
}

// free says whether another host than had it last may have the address.
func (s *Slot) free(now time.Time) bool { return !s.Freed.IsZero() && now.Sub(s.Freed) >= Grace }

// View is what a store has. What it does not know yet it says so of, and is asked
// again when it does.
type View interface {
	// Holding returns that of a host, nil where it has none.
	Holding(Key) (h *Holding, known bool)
	// Slot returns what is kept of an address, nil where it was never used.
	Slot(netip.Addr) (s *Slot, known bool)
	// Slots are all that are kept.
	Slots() (all iter.Seq2[netip.Addr, *Slot], known bool)
}

// Change is what becomes of a host. A nil Holding goes. Where Slot is not nil it
// is what is to be kept of the address IPv4.
type Change struct {
	Key
	Holding *Holding
	IPv4    netip.Addr
	Slot    *Slot
}

// Decision is what claims come to. Where Unknown is not empty, or AllSlots is set,
// it is not the last word: the view has to know these first.
type Decision struct {
	Changes []Change
	// Without are the hosts that got no address because none is left.
	Without []Key

	Unknown struct {
		Hosts []Key
		Slots []netip.Addr
	}
	AllSlots bool
}

// Complete says whether the view knew enough.
func (d *Decision) Complete() bool {
	return len(d.Unknown.Hosts) == 0 && len(d.Unknown.Slots) == 0 && !d.AllSlots
}

// Decide returns what becomes of the hosts that claims are about. Equal arguments
// give equal decisions.
func (r Ranges) Decide(claims []Claim, view View, now time.Time) *Decision {
	d := &deciding{Ranges: r, view: view, now: now.UTC().Truncate(time.Millisecond), taken: map[netip.Addr]bool{}}
	for _, claim := range claims {
		d.host(claim)
	}
	return &d.Decision
}

// deciding is a decision under way.
type deciding struct {
	Ranges
	Decision
	view  View
	now   time.Time
	taken map[netip.Addr]bool // changed by this decision
}

func (d *deciding) host(c Claim) {
	holding, known := d.view.Holding(c.Key)
	switch {
	case !known:
		d.Unknown.Hosts = append(d.Unknown.Hosts, c.Key)
	case holding != nil:
		d.held(c, holding)
	case len(c.Add) > 0 && d.Enabled():
		d.give(c)
	}
}

// held moves the owners of an address, which is free once there are none.
func (d *deciding) held(c Claim, h *Holding) {
	owners := slices.DeleteFunc(slices.Clone(h.Owners), func(name string) bool { return slices.Contains(c.Drop, name) })
	owners = slices.Concat(owners, c.Add)
	slices.Sort(owners)
	owners = slices.Compact(owners)
	_, known := d.view.Slot(h.IPv4)
	switch {
	case len(owners) == 0 && !known:
		d.Unknown.Slots = append(d.Unknown.Slots, h.IPv4)
	case len(owners) == 0:
		d.taken[h.IPv4] = true
		d.Changes = append(d.Changes, Change{Key: c.Key, IPv4: h.IPv4, Slot: &Slot{Key: c.Key, Freed: d.now}})
	case !slices.Equal(owners, h.Owners):
		d.Changes = append(d.Changes, Change{Key: c.Key, Holding: &Holding{h.IPv4, h.IPv6, owners}})
	}
}

// give finds an address for a host that has none.
func (d *deciding) give(c Claim) {
	ipv4, found := d.probe(c.Key)
	if !found && d.Complete() {
		ipv4, found = d.search(c.Key)
	}
	if !d.Complete() {
		return
	}
	if !found {
		d.Without = append(d.Without, c.Key)
		return
	}
	d.taken[ipv4] = true
	owners := slices.Clone(c.Add)
	slices.Sort(owners)
	d.Changes = append(d.Changes, Change{
		Key: c.Key, Holding: &Holding{ipv4, d.IPv6For(ipv4), owners}, IPv4: ipv4, Slot: &Slot{Key: c.Key},
	})
}

// probe looks at the addresses that the name of a host leads to. Of the first that
// was never used it need not look further: had the host had a later one, this one
// would have been in use.
func (d *deciding) probe(k Key) (found netip.Addr, ok bool) {
	var unknown []netip.Addr
	var never netip.Addr
	for i := range Probes {
		ipv4 := d.Probe(k, i)
		slot, known := d.view.Slot(ipv4)
		switch {
		case d.taken[ipv4]:
		case !known:
			unknown = append(unknown, ipv4)
		case slot == nil:
			never = ipv4
		case slot.Key == k: // held no more, or lost by a damaged value
			return ipv4, true
		}
		if never.IsValid() {
			break
		}
	}
	if len(unknown) > 0 {
		d.Unknown.Slots = append(d.Unknown.Slots, unknown...)
		return netip.Addr{}, false
	}
	return never, never.IsValid()
}

// search looks at all addresses: the host's own of the past, else the first after
// its own place that was never used, else the one that is free for longest.
func (d *deciding) search(k Key) (found netip.Addr, ok bool) {
	slots, known := d.view.Slots()
	if !known {
		d.AllSlots = true
		return netip.Addr{}, false
	}
	used := map[netip.Addr]bool{}
	var oldest *Slot
	var longest netip.Addr
	for ipv4, slot := range slots {
		if used[ipv4] = true; !d.IPv4.Contains(ipv4) || d.taken[ipv4] {
			continue
		}
		if slot.Key == k {
			return ipv4, true
		}
		if slot.free(d.now) && (oldest == nil || slot.Freed.Before(oldest.Freed)) {
			oldest, longest = slot, ipv4
		}
	}
	if ipv4, ok := d.unused(k, used); ok {
		return ipv4, true
	}
	return longest, oldest != nil
}

// unused is the first address, from the place of a host on, that none has or had.
func (d *deciding) unused(k Key, used map[netip.Addr]bool) (netip.Addr, bool) {
	ipv4 := d.Probe(k, 0)
	for range d.Size() {
		if !used[ipv4] && !d.taken[ipv4] {
			return ipv4, true
		}
		if ipv4 = ipv4.Next(); ipv4 == d.slot(d.Size()) {
			ipv4 = d.slot(0)
		}
	}
	return netip.Addr{}, false
}
