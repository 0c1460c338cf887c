package address

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
)

// v6Bits is how many bits of an IPv6 address come from its IPv4 address.
const v6Bits = 32

// Ranges are the sources of new addresses. A host gets an address of IPv4, and the address
// of IPv6 that ends in the same 32 bits. So all addresses are distinct if the IPv4
// addresses are, also across a change of the ranges. Allocated addresses stay when the
// ranges change.
type Ranges struct{ IPv4, IPv6 netip.Prefix }

// DefaultRanges returns Istio's ranges.
func DefaultRanges() Ranges {
	return Ranges{IPv4: netip.MustParsePrefix("240.240.0.0/16"), IPv6: netip.MustParsePrefix("2001:2::/48")}
}

// CheckIPv4 says what is wrong with an IPv4 range.
func CheckIPv4(p netip.Prefix) error {
	switch {
	case !p.Addr().Is4():
		return fmt.Errorf("%s is not a range of IPv4 addresses: give one such as 240.240.0.0/16", p)
	case p.Bits() < 8 || p.Bits() > 30:
		return fmt.Errorf("%s: give a range of /8 to /30", p)
	}
	return nil
}

// CheckIPv6 says what is wrong with an IPv6 range.
func CheckIPv6(p netip.Prefix) error {
	switch {
	case !p.Addr().Is6() || p.Addr().Is4In6():
		return fmt.Errorf("%s is not a range of IPv6 addresses: give one such as 2001:2::/48", p)
	case p.Bits() > 128-v6Bits:
		return fmt.Errorf("%s is too small: the last 32 bits are those of the IPv4 address: give /96 or larger", p)
	}
	return nil
}

// Enabled says whether hosts get addresses: with the zero Ranges they get none.
func (r Ranges) Enabled() bool { return r.IPv4.IsValid() }

// Size returns how many hosts can have an address: no host gets the first or the last
// address of the IPv4 range.
func (r Ranges) Size() int { return 1<<(32-r.IPv4.Bits()) - 2 }

// slot returns the IPv4 address of a place, counted from 0.
func (r Ranges) slot(place int) netip.Addr {
	base := r.IPv4.Masked().Addr().As4()
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], binary.BigEndian.Uint32(base[:])+uint32(place)+1)
	return netip.AddrFrom4(out)
}

// place returns the index of an address in the range; false for any other address, and for
// the first and the last of the range.
func (r Ranges) place(ipv4 netip.Addr) (int, bool) {
	if !r.IPv4.Contains(ipv4) {
		return 0, false
	}
	base, own := r.IPv4.Masked().Addr().As4(), ipv4.As4()
	place := int(binary.BigEndian.Uint32(own[:])-binary.BigEndian.Uint32(base[:])) - 1
	return place, place >= 0 && place < r.Size()
}

// IPv6For returns the IPv6 address that a host gets with an IPv4 address.
func (r Ranges) IPv6For(ipv4 netip.Addr) netip.Addr {
	out, low := r.IPv6.Masked().Addr().As16(), ipv4.As4()
	copy(out[12:], low[:])
	return netip.AddrFrom16(out)
}

// Probe returns the i-th address to try for a host. The hash of its name gives both the
// first address and the step from one address to the next.
func (r Ranges) Probe(k Key, i int) netip.Addr { return r.walk(k).at(i) }

// walk is the order in which the addresses of the range are tried for a host.
type walk struct {
	Ranges
	start, step, size uint64
}

func (r Ranges) walk(k Key) walk {
	h := fnv.New64a()
	_, _ = h.Write([]byte(k.Namespace + "/" + k.Host)) // never fails
	sum, size := h.Sum64(), uint64(r.Size())
	return walk{r, sum % size, 1 + (sum>>32)%max(size-1, 1), size}
}

func (w walk) at(i int) netip.Addr { return w.slot(int((w.start + uint64(i)*w.step) % w.size)) }
