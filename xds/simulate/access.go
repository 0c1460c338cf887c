package simulate

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/names"
)

// Decision is the answer of an RBAC filter to a request or a connection.
type Decision struct {
	// Filter is the name of the filter.
	Filter string
	Action rbacv3.RBAC_Action
	// Shadow rules are watched: nothing they say has an effect on the request.
	Shadow bool
	// Refuses: the rules refuse the request.
	Refuses bool
	// Policy is the name of the first policy of the filter that matches, in the order of
	// names; empty for none.
	Policy string
}

// Rule is the rule of an AuthorizationPolicy that matched; false for none.
func (d Decision) Rule() (names.PolicyRule, bool) { return names.ParsePolicyRule(d.Policy) }

// Details are the response code details of a refused request in access logs.
func (d Decision) Details() string {
	if d.Policy == "" {
		return "rbac_access_denied_matched_policy[none]"
	}
	return "rbac_access_denied_matched_policy[" + d.Policy + "]"
}

// Refused returns the decision that refused the request; false if none did.
func (r Result) Refused() (Decision, bool) {
	i := slices.IndexFunc(r.Access, func(d Decision) bool { return d.Refuses && !d.Shadow })
	if i < 0 {
		return Decision{}, false
	}
	return r.Access[i], true
}

// ruled is an RBAC filter of requests or connections.
type ruled interface {
	proto.Message
	GetRules() *rbacv3.RBAC
	GetShadowRules() *rbacv3.RBAC
	GetShadowRulesStatPrefix() string
}

// guard is a filter that may refuse what it judges.
type guard interface {
	// pass says whether a request or a connection passes. Else the result says why.
	pass(a *attributes, result *Result) bool
}

// accessGuard is an RBAC filter.
type accessGuard struct {
	name   string
	config ruled
}

// newAccessGuard fails on what the simulation does not know.
func newAccessGuard(name string, config ruled) (accessGuard, error) {
	known := proto.Clone(config).ProtoReflect()
	for _, field := range []string{"rules", "shadow_rules", "shadow_rules_stat_prefix", "stat_prefix", "enforcement_type", "delay_deny"} {
		if fd := known.Descriptor().Fields().ByTextName(field); fd != nil {
			known.Clear(fd)
		}
	}
	if proto.Size(known.Interface()) > 0 {
		return accessGuard{}, fmt.Errorf("simulation of the RBAC filter %s with %v", name, known.Interface())
	}
	return accessGuard{name, config}, nil
}

// pass runs a request through filters until one refuses it. It says whether all let it pass.
func (a *attributes) pass(guards []guard, result *Result) bool {
	for _, g := range guards {
		if !g.pass(a, result) {
			return false
		}
	}
	return true
}

// pass implements guard.
func (g accessGuard) pass(a *attributes, result *Result) bool {
	shadow, err := a.decide(g.name, g.config.GetShadowRules())
	if err == nil && shadow != nil {
		shadow.Shadow = true
		result.Access = append(result.Access, *shadow)
		if shadow.Policy != "" {
			a.request = a.request.withMetadata(a.accessMetadata(), g.config.GetShadowRulesStatPrefix()+"shadow_effective_policy_id", shadow.Policy)
		}
	}
	enforced, enforcedErr := a.decide(g.name, g.config.GetRules())
	if err == nil {
		err = enforcedErr
	}
	if err != nil {
		result.Err = fmt.Errorf("filter %s: %w", g.name, err)
		return false
	}
	if enforced == nil {
		return true
	}
	result.Access = append(result.Access, *enforced)
	if enforced.Refuses && !a.connection {
		result.Status, result.Body = http.StatusForbidden, "RBAC: access denied"
	}
	return !enforced.Refuses
}

// accessMetadata is where RBAC filters leave the policy that matched in their shadow rules.
func (a *attributes) accessMetadata() string {
	if a.connection {
		return "envoy.filters.network.rbac"
	}
	return "envoy.filters.http.rbac"
}

// decide evaluates rules; nil if there are none.
func (a attributes) decide(filter string, rules *rbacv3.RBAC) (*Decision, error) {
	if rules == nil {
		return nil, nil
	}
	out := &Decision{Filter: filter, Action: rules.GetAction()}
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		matched, err := a.policy(rules.GetPolicies()[name])
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		if matched {
			out.Policy = name
			break
		}
	}
	switch rules.GetAction() {
	case rbacv3.RBAC_ALLOW:
		out.Refuses = out.Policy == ""
	case rbacv3.RBAC_DENY:
		out.Refuses = out.Policy != ""
	}
	return out, nil
}

// identityOf returns the name that the client proves to a chain: nothing in plaintext, and
// nothing to a chain that asks for no certificate. encrypted says whether the chain ends TLS.
func identityOf(chain *listenerv3.FilterChain, r Request) (identity string, encrypted bool, err error) {
	config := chain.GetTransportSocket().GetTypedConfig()
	if config == nil || !r.encrypted() {
		return "", false, nil
	}
	context, quic := &tlsv3.DownstreamTlsContext{}, &quicv3.QuicDownstreamTransport{}
	switch {
	case config.MessageIs(context):
		err = config.UnmarshalTo(context)
	case config.MessageIs(quic):
		err = config.UnmarshalTo(quic)
		context = quic.GetDownstreamTlsContext()
	}
	if context.GetCommonTlsContext().GetValidationContextType() != nil {
		identity = r.Identity
	}
	return identity, true, err
}
