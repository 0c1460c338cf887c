package mesh

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// addresses maps each address, in its one spelling, to the hosts whose services have it
// or were assigned it.
type addresses struct{ groups[bool] }

var addressRows = addresses{groupsOf[bool](Addresses)}

func (t addresses) follow(from, to *PushContext) {
	for c := range hostRows.diff(from, to) {
		before, after := c.Old.Addresses(), c.New.Addresses()
		for _, address := range before {
			if !slices.Contains(after, address) {
				t.remove(to, address, c.Key)
			}
		}
		for _, address := range after {
			if !slices.Contains(before, address) {
				t.add(to, address, c.Key, true)
			}
		}
	}
}

// HostsAt iterates over the hosts that have an address or were assigned it, in order. The
// proxy need not see them: ask Service or ServiceAt for each.
func (v *View) HostsAt(address string) iter.Seq[string] {
	return v.ask(Addresses, service.AddressKey(address), "").(members).Keys()
}
