package mesh

import (
	"iter"
	"slices"

	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// addresses has the hosts by each address that their services have or were
// assigned, in its one spelling.
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

// HostsAt are the hosts that have an address or were assigned it, in order, whether
// the proxy sees them or not: ask Service or ServiceAt of each.
func (v *View) HostsAt(address string) iter.Seq[string] {
	return v.ask(Addresses, service.AddressKey(address), "").(members).Keys()
}
