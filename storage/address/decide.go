package address

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"
)

const (
	// Probes is how many addresses a search for a host tries before it tries all.
	Probes = 8
	// Grace is how long no other host gets an address that became free, since proxies and
	// name servers may still use it.
	Grace = 10 * time.Minute
)

// Holding is the stored state of a host that has an address. It is never modified.
type Holding struct {
	IPv4, IPv6 netip.Addr
	// Owners are the ServiceEntries that need it, in order.
	Owners []string
}

// Slot is the stored state of an IPv4 address that a host has or had.
type Slot struct {
	Key
	// Freed is when it became free, zero while it is not.
	Freed time.Time
}

// free says whether a host other than the last may get the address.
func (s *Slot) free(now time.Time) bool { return !s.Freed.IsZero() && now.Sub(s.Freed) >= Grace }

// Reader reads the state of a store. It returns known false for state that is not loaded yet.
// The caller loads what the Decision asks for (Unknown, AllSlots), and decides again.
type Reader interface {
	// Holding returns the Holding of a host, nil if it has none.
	Holding(Key) (h *Holding, known bool)
	// Slot returns the Slot of an address, nil if the address was never used.
	Slot(netip.Addr) (s *Slot, known bool)
	// Slots returns all stored Slots.
	Slots() (all iter.Seq2[netip.Addr, *Slot], known bool)
}

// Change is the new state of a host. A nil Holding deletes the stored one. A Slot, if not
// nil, is the new state of the address IPv4.
type Change struct {
	Key
	Holding *Holding
	IPv4    netip.Addr
	Slot    *Slot
}

// Decision is the result of claims. If Unknown is not empty, or AllSlots is set, it is
// not final: the view must learn these first.
type Decision struct {
	Changes []Change
	// Without lists the hosts that got no address, because none is left.
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

// Decide returns the new state of the hosts that claims name. Equal arguments give equal
// decisions. It takes one step a claim; if the first addresses of a host are taken, it also
// reads all slots, once. It fails only when ctx ends.
func (r Ranges) Decide(ctx context.Context, claims []Claim, view Reader, now time.Time) (*Decision, error) {
	d := &decider{Ranges: r, view: view, now: now.UTC().Truncate(time.Millisecond), taken: map[netip.Addr]bool{}}
	for i, claim := range claims {
		if i%claimsPerLook == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("addresses of hosts: %w", context.Cause(ctx))
		}
		d.host(claim)
	}
	return &d.Decision, nil
}

// claimsPerLook is the number of claims between two checks of ctx.
const claimsPerLook = 256

// decider is a decision under way.
type decider struct {
	Ranges
	Decision
	view  Reader
	now   time.Time
	taken map[netip.Addr]bool // changed by this decision
	rest  *slotIndex          // the slots besides the first addresses of hosts; nil until it is needed
}

func (d *decider) host(c Claim) {
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

// held changes the owners of an address. An address without owners becomes free.
func (d *decider) held(c Claim, h *Holding) {
	drop := slices.Sorted(slices.Values(c.Drop))
	owners := slices.DeleteFunc(slices.Clone(h.Owners), func(name string) bool {
		_, drops := slices.BinarySearch(drop, name)
		return drops
	})
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
func (d *decider) give(c Claim) {
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

// probe looks at the addresses that follow from a host's name. It stops at the first
// that was never used: if the host had had a later one, this one would have been in
// use.
func (d *decider) probe(k Key) (found netip.Addr, ok bool) {
	var unknown []netip.Addr
	var never netip.Addr
	way := d.walk(k)
	for i := range Probes {
		ipv4 := way.at(i)
		slot, known := d.view.Slot(ipv4)
		switch {
		case d.taken[ipv4]:
		case !known:
			unknown = append(unknown, ipv4)
		case slot == nil:
			never = ipv4
		case slot.Key == k: // no longer held, or its Holding was damaged
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

// search looks at all addresses. It returns the host's former address, else the first
// unused one from the host's place on, else the one that has been free for longest.
func (d *decider) search(k Key) (found netip.Addr, ok bool) {
	if d.rest == nil {
		slots, known := d.view.Slots()
		if !known {
			d.AllSlots = true
			return netip.Addr{}, false
		}
		d.rest = d.newSlotIndex(slots)
	}
	if ipv4, ok := d.rest.former[k]; ok && !d.taken[ipv4] {
		return ipv4, true
	}
	if ipv4, ok := d.rest.unused(int(d.walk(k).start), d.taken); ok {
		return ipv4, true
	}
	return d.rest.longestFree(d.taken)
}
