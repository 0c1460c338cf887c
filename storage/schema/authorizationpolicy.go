package schema

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"istio.io/api/annotation"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

func authorizationPolicy() *Schema {
	return definition[*security.AuthorizationPolicy]{
		kind: AuthorizationPolicy, plural: "authorizationpolicies", shortName: "ap",
		codec:  config.Protobuf[security.AuthorizationPolicy](),
		served: serve("selector", "targetRef", "targetRefs", "rules", "action", "provider"),
		check:  checkAuthorizationPolicy,
	}.schema()
}

// checkAuthorizationPolicy checks what Istio checks, and what Envoy would refuse.
// https://github.com/istio/istio/blob/1.28.0/pkg/config/validation/validation.go ValidateAuthorizationPolicy
func checkAuthorizationPolicy(c checker, p *security.AuthorizationPolicy) {
	c.target(p)
	if s := p.GetSelector(); s != nil && len(s.GetMatchLabels()) == 0 {
		c.at("selector").warn("has no labels and selects every workload")
	}
	c.dryRun(p)
	custom := p.Action == security.AuthorizationPolicy_CUSTOM
	switch {
	case security.AuthorizationPolicy_Action_name[int32(p.Action)] == "":
		c.at("action").fail("must be one of ALLOW, DENY, AUDIT, CUSTOM, is %d", p.Action)
	case custom && p.GetProvider().GetName() == "":
		c.at("provider", "name").fail("is missing: action CUSTOM asks a provider, one of extensionProviders of the mesh configuration")
	case !custom && p.GetProvider() != nil:
		c.at("provider").fail("goes with action CUSTOM only, the action is %s", p.Action)
	}
	if len(p.Rules) == 0 && (custom || p.Action == security.AuthorizationPolicy_DENY) {
		c.at("rules").fail("is missing, so that %s never happens: write rules: [{}] for every request", p.Action)
	}
	each(c.at("rules"), p.Rules, func(c checker, rule *security.Rule) {
		each(c.at("from"), rule.GetFrom(), func(c checker, from *security.Rule_From) { c.at("source").source(from.GetSource(), custom) })
		each(c.at("to"), rule.GetTo(), func(c checker, to *security.Rule_To) { c.at("operation").operation(to.GetOperation()) })
		each(c.at("when"), rule.GetWhen(), func(c checker, when *security.Condition) { c.condition(when, custom) })
		if p.Action == security.AuthorizationPolicy_DENY && onlyHTTP(rule) {
			c.warn("denies all connections to TCP ports, which have no HTTP attributes: name the ports in to")
		}
	})
}

// dryRun checks the annotation that has a policy watched and not enforced.
func (c checker) dryRun(p *security.AuthorizationPolicy) {
	name := annotation.IoIstioDryRun.Name
	annotations := c.report.at("metadata").at("annotations")
	for _, key := range sortedKeys(c.report.object.Annotations) {
		if key != name && strings.HasPrefix(key, "istio.io/") && spelling.Nearest(key, []string{name}) != "" {
			annotations.key(key).fail("is none that has an effect, and the policy is enforced: did you mean %s?", name)
		}
	}
	value, ok := c.report.object.Annotations[name]
	if !ok {
		return
	}
	at := annotations.key(name)
	if dry, err := strconv.ParseBool(value); err != nil {
		at.fail("must be true or false, is %q", value)
	} else if dry && p.Action != security.AuthorizationPolicy_ALLOW && p.Action != security.AuthorizationPolicy_DENY {
		at.fail("goes with the actions ALLOW and DENY only, the action is %s", p.Action)
	}
}

func (c checker) source(s *security.Source, custom bool) {
	if s == nil || !anySet(s) {
		c.fail("is missing: name a principal, a namespace or an address, or leave from out for any source")
		return
	}
	names := map[string][]string{
		"principals": s.Principals, "notPrincipals": s.NotPrincipals, "namespaces": s.Namespaces, "notNamespaces": s.NotNamespaces,
		"requestPrincipals": s.RequestPrincipals, "notRequestPrincipals": s.NotRequestPrincipals,
		"trustDomains": s.TrustDomains, "notTrustDomains": s.NotTrustDomains,
	}
	accounts := map[string][]string{"serviceAccounts": s.ServiceAccounts, "notServiceAccounts": s.NotServiceAccounts}
	for _, field := range sortedKeys(names) {
		each(c.at(field), names[field], checker.pattern)
	}
	for _, field := range sortedKeys(accounts) {
		each(c.at(field), accounts[field], checker.serviceAccount)
		if len(accounts[field]) > 0 && len(s.Principals)+len(s.NotPrincipals)+len(s.Namespaces)+len(s.NotNamespaces) > 0 {
			c.at(field).fail("excludes principals and namespaces: name service accounts alone, as namespace/account")
		}
	}
	blocks := map[string][]string{
		"ipBlocks": s.IpBlocks, "notIpBlocks": s.NotIpBlocks, "remoteIpBlocks": s.RemoteIpBlocks, "notRemoteIpBlocks": s.NotRemoteIpBlocks,
	}
	for _, field := range sortedKeys(blocks) {
		each(c.at(field), blocks[field], checker.block)
	}
	if custom {
		for _, fields := range []map[string][]string{names, accounts} {
			for _, field := range sortedKeys(fields) {
				if len(fields[field]) > 0 {
					c.at(field).fail("does not go with action CUSTOM, which is decided before: use ALLOW or DENY beside it")
				}
			}
		}
	}
}

func (c checker) operation(o *security.Operation) {
	if o == nil || !anySet(o) {
		c.fail("is missing: name a host, a port, a method or a path, or leave to out for any operation")
		return
	}
	each(c.at("hosts"), o.Hosts, checker.pattern)
	each(c.at("notHosts"), o.NotHosts, checker.pattern)
	each(c.at("ports"), o.Ports, checker.portText)
	each(c.at("notPorts"), o.NotPorts, checker.portText)
	each(c.at("methods"), o.Methods, checker.method)
	each(c.at("notMethods"), o.NotMethods, checker.method)
	each(c.at("paths"), o.Paths, checker.policyPath)
	each(c.at("notPaths"), o.NotPaths, checker.policyPath)
}

func (c checker) condition(when *security.Condition, custom bool) {
	if when.GetKey() == "" {
		c.at("key").fail("is missing")
		return
	}
	attribute, _, err := ParseCondition(when.Key)
	if err != nil {
		c.at("key").fail("%v", err)
		return
	}
	if custom && beforeCustom(attribute) {
		c.at("key").fail("%q does not go with action CUSTOM, which is decided before: use ALLOW or DENY beside it", when.Key)
	}
	if len(when.Values)+len(when.NotValues) == 0 {
		c.at("values").fail("is missing: set values, notValues or both")
	}
	check := checker.pattern
	switch attribute {
	case SourceIP, RemoteIP, DestinationIP:
		check = checker.block
	case DestinationPort:
		check = checker.portText
	case SourceServiceAccount:
		check = checker.serviceAccount
	}
	each(c.at("values"), when.Values, check)
	each(c.at("notValues"), when.NotValues, check)
}

// beforeCustom says whether Istio refuses an attribute with action CUSTOM, which is decided
// before tokens are read.
func beforeCustom(a Attribute) bool {
	switch a {
	case SourceNamespace, SourcePrincipal, SourceServiceAccount, SourceTrustDomain:
		return true
	}
	return strings.HasPrefix(string(a), "request.auth.")
}

// pattern checks a value that is exact, "prefix*", "*suffix" or "*".
func (c checker) pattern(value string) {
	c.oneLine(value)
	if value == "" {
		c.fail(`is empty: write "*" for any value`)
		return
	}
	inner := strings.TrimSuffix(value, "*")
	if inner == value {
		inner = strings.TrimPrefix(value, "*")
	}
	if strings.Contains(inner, "*") {
		c.fail(`%q has a wildcard that is compared as text: "*" alone, at the beginning or at the end stands for any text`, value)
	}
}

func (c checker) method(value string) {
	c.pattern(value)
	if known := strings.ToUpper(value); value != known && slices.Contains(methods(), known) {
		c.warn("%q matches no request, since methods are compared with their case: write %s", value, known)
	}
}

func methods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}
}

func (c checker) policyPath(value string) {
	if !IsPathTemplate(value) {
		c.pattern(value)
		return
	}
	if _, err := EnvoyPathTemplate(value); err != nil {
		c.fail("%q %v", value, err)
	}
}

// serviceAccount checks an account, with or without its namespace.
func (c checker) serviceAccount(value string) {
	namespace, account, ok := strings.Cut(value, "/")
	if !ok {
		namespace, account = "any", value
	}
	const limit = 320 // of Istio's API
	switch {
	case value == "":
		c.fail("is empty: write namespace/account, or the account alone for one of this namespace")
	case strings.Contains(value, "*"):
		c.fail("%q has a wildcard: write namespace/account, or use principals or namespaces", value)
	case namespace == "" || account == "" || strings.Contains(account, "/"):
		c.fail("%q is not an account: write namespace/account, or the account alone for one of this namespace", value)
	case len(value) > limit:
		c.fail("has %d bytes: %d is the limit", len(value), limit)
	}
	c.oneLine(value)
}

func (c checker) block(value string) {
	_, err := ParseBlock(value)
	c.failIf(err)
}

// portText checks a port that is written as text.
func (c checker) portText(value string) {
	port, err := strconv.ParseUint(value, 10, 32)
	if err != nil || port < 1 || port > 65535 {
		c.fail("must be a port from 1 to 65535, is %q", value)
	}
}

// onlyHTTP says whether a rule names sources or operations, and none that a connection has.
func onlyHTTP(rule *security.Rule) bool {
	ofConnection := func(from *security.Rule_From) bool {
		return anySet(from.GetSource(), "requestPrincipals", "notRequestPrincipals")
	}
	withPort := func(to *security.Rule_To) bool {
		return len(to.GetOperation().GetPorts())+len(to.GetOperation().GetNotPorts()) > 0
	}
	if len(rule.GetTo()) > 0 {
		return !slices.ContainsFunc(rule.GetTo(), withPort)
	}
	return len(rule.GetFrom()) > 0 && !slices.ContainsFunc(rule.GetFrom(), ofConnection)
}
