package policy

import (
	"iter"
	"slices"

	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	jwtauthnv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Slot is the place of a filter in the listeners of a workload. What is in it is a resource of its
// own (ECDS), whose name is that of the filter. So a changed policy changes no listener, and ends
// no connection.
type Slot struct {
	Name   string
	does   task
	action security.AuthorizationPolicy_Action // of the policies, none for tokens
	tcp    bool
}

// task is what the filter of a slot does. Most, of task 0, judge by the rules of policies.
type task int

const (
	// asks: the filter asks the provider of CUSTOM policies, about what the slot before it selects.
	asks task = iota + 1
	// verifies: the filter verifies tokens, as RequestAuthentications say.
	verifies
)

// Accepts returns the type of filter that may be in the slot. An RBAC may be in each.
func (s Slot) Accepts() proto.Message {
	switch {
	case s.does == verifies:
		return &jwtauthnv3.JwtAuthentication{}
	case s.does == asks && s.tcp:
		return &networkauthzv3.ExtAuthz{StatPrefix: envoy.TCPRBACStatPrefix}
	case s.does == asks:
		return &httpauthzv3.ExtAuthz{}
	case s.tcp:
		return &networkrbacv3.RBAC{StatPrefix: envoy.TCPRBACStatPrefix}
	}
	return &httprbacv3.RBAC{}
}

// The slots, in the order in which requests and connections pass them: what is refused by DENY is
// refused whatever ALLOW says, and what a provider refuses whatever both say. What a token says is
// known to AUDIT, DENY and ALLOW. (Istio: buildHTTPConnectionManager, BuildTCP.)
var slots = []Slot{
	{Name: names.HTTPCustomRules, action: security.AuthorizationPolicy_CUSTOM},
	{Name: names.HTTPCustomCheck, action: security.AuthorizationPolicy_CUSTOM, does: asks},
	{Name: names.HTTPTokens, does: verifies},
	{Name: names.HTTPAudit, action: security.AuthorizationPolicy_AUDIT},
	{Name: names.HTTPDeny, action: security.AuthorizationPolicy_DENY},
	{Name: names.HTTPAllow, action: security.AuthorizationPolicy_ALLOW},
	{Name: names.TCPCustomRules, action: security.AuthorizationPolicy_CUSTOM, tcp: true},
	{Name: names.TCPCustomCheck, action: security.AuthorizationPolicy_CUSTOM, tcp: true, does: asks},
	{Name: names.TCPAudit, action: security.AuthorizationPolicy_AUDIT, tcp: true},
	{Name: names.TCPDeny, action: security.AuthorizationPolicy_DENY, tcp: true},
	{Name: names.TCPAllow, action: security.AuthorizationPolicy_ALLOW, tcp: true},
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
// IsSlot says whether a slot has a name.
func IsSlot(name string) bool {
	_, ok := find(name)
	return ok
}

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
