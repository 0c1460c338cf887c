package serviceentry

import (
	"net/netip"
	"strings"

	"github.com/portolan-mesh/portolan/storage/pmap"
)

// addressIndex finds the ServiceEntries whose addresses overlap a range. Its keys are the bits
// of a range, one byte each, so the key of a range is a prefix of the keys of all ranges
// within it. The zero index is empty.
type addressIndex struct {
	ranges pmap.Map[*entry] // by bits|namespace/name
}

func (x *addressIndex) add(e *entry) {
	for _, prefix := range e.ranges() {
		x.ranges = x.ranges.Set(rangeKey(prefix, e), e)
	}
}

func (x *addressIndex) remove(e *entry) {
	for _, prefix := range e.ranges() {
		x.ranges = x.ranges.Delete(rangeKey(prefix, e))
	}
}

// overlapping calls f for each ServiceEntry with an address in the range, or a range that
// overlaps it, until f returns false. The order is fixed, wider ranges first.
func (x *addressIndex) overlapping(prefix netip.Prefix, f func(*entry) bool) {
	all := prefixBits(prefix)
	for n := range len(all) { // the wider ranges that contain it
		for _, e := range x.ranges.Prefix(all[:n] + "|") {
			if !f(e) {
				return
			}
		}
	}
	for _, e := range x.ranges.Prefix(all) { // the range itself, and those within it
		if !f(e) {
			return
		}
	}
}

func rangeKey(prefix netip.Prefix, e *entry) string {
	return prefixBits(prefix) + "|" + e.object.Namespace + "/" + e.object.Name
}

// prefixBits writes the fixed bits of a range, behind one byte for the family.
func prefixBits(prefix netip.Prefix) string {
	address := prefix.Addr()
	var b strings.Builder
	if address.Is4() {
		b.WriteByte('4')
	} else {
		b.WriteByte('6')
	}
	raw := address.AsSlice()
	for i := range prefix.Bits() {
		b.WriteByte('0' + raw[i/8]>>(7-i%8)&1)
	}
	return b.String()
}

func (e *entry) ranges() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range e.spec.GetAddresses() {
		if prefix, err := netip.ParsePrefix(s); err == nil {
			out = append(out, prefix.Masked())
		} else if address, err := netip.ParseAddr(s); err == nil {
			address = address.Unmap().WithZone("")
			out = append(out, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return out
}
