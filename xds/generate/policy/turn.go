package policy

import (
	"maps"

	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	jwtauthnv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// The turns in which slots change that change at the same time. A request passes all slots, and may
// come when a proxy has the new content of some. In these turns it is answered by the policies of
// before, by those of afterwards, or refused because either do.
const (
	fill   = iota // tokens are verified, and providers asked, before rules rely on it
	refuse        // DENY refuses what it refused, and what it will
	change        // ALLOW, and all else
	relax         // DENY refuses no longer what only the former policies did
	empty         // tokens and providers that no rules rely on any more
)

// Turn returns the turn of a slot that changes from one content to another, and the content for now
// in the place of the new one: the rules of both. It is nil for the new one itself. Contents that
// EnvoyFilters have made something else of change with ALLOW.
func Turn(has, wants *anypb.Any) (turn int, interim proto.Message) {
	_, from := contentOf(has)
	name, to := contentOf(wants)
	slot, ok := find(name)
	if !ok || from == nil || to == nil {
		return change, nil
	}
	switch slot.action {
	case security.AuthorizationPolicy_DENY:
		return slot.deny(from, to)
	case security.AuthorizationPolicy_CUSTOM:
	default:
		if slot.does != verifies {
			return change, nil
		}
	}
	switch {
	case isEmpty(from) && !isEmpty(to):
		return fill, nil
	case isEmpty(to) && !isEmpty(from):
		return empty, nil
	}
	return change, nil
}

// contentOf returns the name and the content of a slot, nil for one that cannot be read.
func contentOf(packed *anypb.Any) (name string, content proto.Message) {
	out := &corev3.TypedExtensionConfig{}
	if packed.UnmarshalTo(out) != nil {
		return "", nil
	}
	content, err := out.GetTypedConfig().UnmarshalNew()
	if err != nil {
		return "", nil
	}
	return out.GetName(), content
}

// deny is Turn for a slot of DENY policies.
func (s Slot) deny(from, to proto.Message) (turn int, interim proto.Message) {
	before, ok := denied(from)
	if !ok {
		return change, nil
	}
	after, ok := denied(to)
	if !ok {
		return change, nil
	}
	both, adds, drops := unite(before.GetPolicies(), after.GetPolicies())
	switch {
	case !drops:
		return refuse, nil
	case !adds:
		return relax, nil
	}
	rules := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: both}
	content := proto.Clone(to)
	switch m := content.(type) {
	case *httprbacv3.RBAC:
		m.Rules = rules
	case *networkrbacv3.RBAC:
		m.Rules = rules
	}
	return refuse, &corev3.TypedExtensionConfig{Name: s.Name, TypedConfig: message.Pack(content)}
}

// formerly ends the name of a rule that is about to go.
const formerly = "-before"

// unite returns the rules of both, and whether after adds some to before, and drops some of it.
func unite(before, after map[string]*rbacv3.Policy) (both map[string]*rbacv3.Policy, adds, drops bool) {
	both = maps.Clone(after)
	if both == nil {
		both = map[string]*rbacv3.Policy{}
	}
	for name, rule := range before {
		if !proto.Equal(rule, after[name]) {
			both[name+formerly] = rule
			drops = true
		}
	}
	for name, rule := range after {
		adds = adds || !proto.Equal(rule, before[name])
	}
	return both, adds, drops
}

// judging is what the RBAC filters of requests and of connections have in common.
type judging interface {
	GetRules() *rbacv3.RBAC
	GetMatcher() *matcherv3.Matcher
	GetShadowRules() *rbacv3.RBAC
	GetShadowMatcher() *matcherv3.Matcher
}

// denied returns the rules of a slot of DENY policies, false if they are something else.
func denied(content proto.Message) (*rbacv3.RBAC, bool) {
	m, ok := content.(judging)
	if !ok || m.GetMatcher() != nil {
		return nil, false
	}
	return m.GetRules(), m.GetRules() == nil || m.GetRules().GetAction() == rbacv3.RBAC_DENY
}

// isEmpty says whether a content lets everything pass, and notes nothing of it.
func isEmpty(content proto.Message) bool {
	switch m := content.(type) {
	case judging:
		return m.GetRules() == nil && m.GetMatcher() == nil && m.GetShadowRules() == nil && m.GetShadowMatcher() == nil
	case *jwtauthnv3.JwtAuthentication:
		return len(m.GetRules()) == 0
	}
	return false
}
