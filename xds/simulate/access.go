package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
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
	// Unknown: whether a policy of the filter matches depends on the identity of an Unnamed client.
	Unknown bool
	// Policy is the name of the first policy of the filter that matches, in the order of
	// names; empty for none. If the decision is Unknown, it may match.
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

// pass runs a request through filters until one refuses it. It says whether all let it pass. A
// filter whose answer is not known lets the next ones answer: if one refuses, the request is refused.
func (a *attributes) pass(guards []guard, result *Result) bool {
	for _, g := range guards {
		passes := g.pass(a, result)
		if result.judged = *a; !passes {
			return false
		}
	}
	if a.undecided {
		result.Err = ErrUnnamed
	}
	return !a.undecided
}

// pass implements guard.
func (g accessGuard) pass(a *attributes, result *Result) bool {
	shadow, err := a.decide(g.name, g.config.GetShadowRules())
	if err == nil && shadow != nil {
		shadow.Shadow = true
		switch prefix := g.config.GetShadowRulesStatPrefix(); {
		case shadow.Unknown:
			a.undecided = a.undecided || prefix == selectedPrefix
		case shadow.Policy != "":
			a.remember(prefix, shadow.Policy)
		}
		result.Access = append(result.Access, *shadow)
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
	a.undecided = a.undecided || enforced.Unknown && enforced.Action != rbacv3.RBAC_LOG
	if enforced.Refuses && !a.connection {
		result.Status, result.Body = http.StatusForbidden, "RBAC: access denied"
	}
	return !enforced.Refuses
}

// decide evaluates rules; nil if there are none.
func (a attributes) decide(filter string, rules *rbacv3.RBAC) (*Decision, error) {
	if rules == nil {
		return nil, nil
	}
	out := &Decision{Filter: filter, Action: rules.GetAction()}
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		matched, err := a.policy(rules.GetPolicies()[name])
		switch {
		case errors.Is(err, ErrUnnamed):
			out.Policy, out.Unknown = cmp.Or(out.Policy, name), true
			continue
		case err != nil:
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		if matched {
			out.Policy, out.Unknown = name, false
			break
		}
	}
	switch rules.GetAction() {
	case rbacv3.RBAC_ALLOW:
		out.Refuses = out.Policy == ""
	case rbacv3.RBAC_DENY:
		out.Refuses = out.Policy != "" && !out.Unknown
	}
	return out, nil
}

// unnamed stands for an identity that is not known. All identities of the mesh begin so.
const unnamed = "spiffe://"

// proves says whether the identity of the client matches. Of an Unnamed one it knows only how all
// identities of the mesh begin.
func (a attributes) proves(name *matcherv3.StringMatcher) (bool, error) {
	prefix, isPrefix := name.GetMatchPattern().(*matcherv3.StringMatcher_Prefix)
	if a.unnamed && !(isPrefix && strings.HasPrefix(unnamed, prefix.Prefix)) {
		return false, ErrUnnamed
	}
	return stringMatches(name, a.identity)
}

// identityOf returns the name that the client proves to a chain: nothing in plaintext, and
// nothing to a chain that asks for no certificate. It is unnamed if the client is Unnamed. encrypted
// says whether the chain ends TLS.
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
		if identity = r.Identity; r.Unnamed {
			identity = unnamed
		}
	}
	return identity, true, err
}
