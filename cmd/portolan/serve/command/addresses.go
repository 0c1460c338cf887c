package command

import (
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/address"
)

// addressFlags holds the address ranges for hosts of ServiceEntries without an address.
type addressFlags struct{ ipv4, ipv6 string }

func (o *addressFlags) register(f *pflag.FlagSet) {
	ranges := address.DefaultRanges()
	f.StringVar(&o.ipv4, "auto-address-ipv4", ranges.IPv4.String(), "range from which hosts of ServiceEntries without an address get one; the same for all servers of a store; those that were given stay")
	f.StringVar(&o.ipv6, "auto-address-ipv6", ranges.IPv6.String(), "range of their IPv6 addresses, /96 or larger: the last 32 bits are those of the IPv4 address")
}

// validate reports what is wrong with the ranges.
func (o *addressFlags) validate(add addFault) {
	for _, f := range []struct {
		flag, value string
		check       func(netip.Prefix) error
	}{
		{"auto-address-ipv4", o.ipv4, address.CheckIPv4}, {"auto-address-ipv6", o.ipv6, address.CheckIPv6},
	} {
		prefix, err := netip.ParsePrefix(f.value)
		if err != nil {
			add(f.flag, "%q is not a range such as ADDRESS/BITS", f.value)
		} else if err := f.check(prefix); err != nil {
			add(f.flag, "%v", err)
		}
	}
}

// apply requires valid flags.
func (o *addressFlags) apply(to *serve.Options) {
	to.Addresses.IPv4, _ = netip.ParsePrefix(o.ipv4)
	to.Addresses.IPv6, _ = netip.ParsePrefix(o.ipv6)
}
