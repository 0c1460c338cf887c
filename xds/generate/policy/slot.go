package policy

import (
	"iter"
	"slices"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Slot is the place of a filter in the listeners of a workload. What is in it is a resource of its
// own (ECDS), whose name is that of the filter. So a changed policy changes no listener, and ends
// no connection.
type Slot struct {
	Name   string
	action securityv1beta1.AuthorizationPolicy_Action
	tcp    bool
}

// The slots, in the order in which requests and connections pass them: what is refused by DENY is
// refused whatever ALLOW says. (Istio: buildHTTPConnectionManager, BuildTCP.)
var slots = []Slot{
	{"portolan.authorization.http.audit", securityv1beta1.AuthorizationPolicy_AUDIT, false},
	{"portolan.authorization.http.deny", securityv1beta1.AuthorizationPolicy_DENY, false},
	{"portolan.authorization.http.allow", securityv1beta1.AuthorizationPolicy_ALLOW, false},
	{"portolan.authorization.tcp.audit", securityv1beta1.AuthorizationPolicy_AUDIT, true},
	{"portolan.authorization.tcp.deny", securityv1beta1.AuthorizationPolicy_DENY, true},
	{"portolan.authorization.tcp.allow", securityv1beta1.AuthorizationPolicy_ALLOW, true},
}

// HTTPSlots iterates over the slots that requests pass, in order.
func HTTPSlots() iter.Seq[Slot] { return slotsOf(false) }

// TCPSlots iterates over the slots that the connections of other protocols pass, in order.
func TCPSlots() iter.Seq[Slot] { return slotsOf(true) }

func slotsOf(tcp bool) iter.Seq[Slot] {
	return func(yield func(Slot) bool) {
		for _, s := range slots {
			if s.tcp == tcp && !yield(s) {
				return
			}
		}
	}
}

// find returns the slot with a name.
func find(name string) (Slot, bool) {
	i := slices.IndexFunc(slots, func(s Slot) bool { return s.Name == name })
	if i < 0 {
		return Slot{}, false
	}
	return slots[i], true
}

// Needs returns the needs of a listener for the content of its slots.
func Needs(http, tcp bool) []resource.Need {
	var out []resource.Need
	for _, s := range slots {
		if s.tcp && tcp || !s.tcp && http {
			out = append(out, resource.Need{TypeURL: resource.ExtensionType, Name: s.Name, Kind: resource.Once})
		}
	}
	return out
}
