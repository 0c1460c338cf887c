package policy

import (
	"iter"
	"slices"

	jwtauthnv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Slot is the place of a filter in the listeners of a workload. What is in it is a resource of its
// own (ECDS), whose name is that of the filter. So a changed policy changes no listener, and ends
// no connection.
type Slot struct {
	Name string
	// action is that of the policies in the slot. A slot for tokens has RequestAuthentications.
	action      securityv1beta1.AuthorizationPolicy_Action
	tcp, tokens bool
}

// Accepts returns the type of filter that may be in the slot.
func (s Slot) Accepts() proto.Message {
	switch {
	case s.tokens:
		return &jwtauthnv3.JwtAuthentication{}
	case s.tcp:
		return &networkrbacv3.RBAC{}
	}
	return &httprbacv3.RBAC{}
}

// The slots, in the order in which requests and connections pass them: what is refused by DENY is
// refused whatever ALLOW says. What a token says is known before policies look at it. (Istio: buildHTTPConnectionManager, BuildTCP.)
var slots = []Slot{
	{Name: "portolan.tokens.http", tokens: true},
	{Name: "portolan.authorization.http.audit", action: securityv1beta1.AuthorizationPolicy_AUDIT},
	{Name: "portolan.authorization.http.deny", action: securityv1beta1.AuthorizationPolicy_DENY},
	{Name: "portolan.authorization.http.allow", action: securityv1beta1.AuthorizationPolicy_ALLOW},
	{Name: "portolan.authorization.tcp.audit", action: securityv1beta1.AuthorizationPolicy_AUDIT, tcp: true},
	{Name: "portolan.authorization.tcp.deny", action: securityv1beta1.AuthorizationPolicy_DENY, tcp: true},
	{Name: "portolan.authorization.tcp.allow", action: securityv1beta1.AuthorizationPolicy_ALLOW, tcp: true},
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
