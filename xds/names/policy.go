package names

import (
	"regexp"
	"strconv"
	"strings"
)

// PolicyRule is a rule of an AuthorizationPolicy.
type PolicyRule struct {
	Namespace, Name string
	// Rule is its index.
	Rule int
}

// Key names the rule in RBAC filters, access logs and the details of responses:
// ns[shop]-policy[web]-rule[0]. Istio has the same.
func (r PolicyRule) Key() string {
	return "ns[" + r.Namespace + "]-policy[" + r.Name + "]-rule[" + strconv.Itoa(r.Rule) + "]"
}

// CustomKey names the rule in the filter that selects what a provider of external
// authorization is asked.
func (r PolicyRule) CustomKey(provider string) string { return CustomPrefix + provider + "-" + r.Key() }

// CustomPrefix begins each CustomKey. (Istio: extauthz.go.)
const CustomPrefix = "istio-ext-authz-"

// UnaskedSuffix ends the key of a rule whose provider cannot be asked, which therefore refuses what
// it matches. (Istio: badCustomActionSuffix.)
const UnaskedSuffix = "-deny-due-to-bad-CUSTOM-action"

// ruleKey finds the rule in a key. The names of namespaces and objects have no brackets.
var ruleKey = regexp.MustCompile(`^(?:istio-ext-authz-.+-)?ns\[([^\[\]]*)\]-policy\[([^\[\]]*)\]-rule\[([0-9]+)\](?:` + UnaskedSuffix + `)?$`)

// ParsePolicyRule is the inverse of Key and CustomKey, also with an UnaskedSuffix; false for other
// texts.
func ParsePolicyRule(key string) (PolicyRule, bool) {
	parts := ruleKey.FindStringSubmatch(key)
	if parts == nil {
		return PolicyRule{}, false
	}
	rule, err := strconv.Atoi(parts[3])
	return PolicyRule{Namespace: parts[1], Name: parts[2], Rule: rule}, err == nil
}

// Names of the filters of policies. Their configuration comes by these names (ECDS), so no two
// share a name.
const (
	HTTPCustomRules = "portolan.authorization.http.custom.rules"
	HTTPCustomCheck = "portolan.authorization.http.custom.check"
	HTTPTokens      = "portolan.tokens.http"
	HTTPAudit       = "portolan.authorization.http.audit"
	HTTPDeny        = "portolan.authorization.http.deny"
	HTTPAllow       = "portolan.authorization.http.allow"
	TCPCustomRules  = "portolan.authorization.tcp.custom.rules"
	TCPCustomCheck  = "portolan.authorization.tcp.custom.check"
	TCPAudit        = "portolan.authorization.tcp.audit"
	TCPDeny         = "portolan.authorization.tcp.deny"
	TCPAllow        = "portolan.authorization.tcp.allow"
)

// PolicyFilter returns the name that Istio has for a filter of policies or of a WasmPlugin, by which
// EnvoyFilters match it; "" for other filters.
func PolicyFilter(name string) string {
	if f, ok := ParsePluginFilter(name); ok {
		return pluginPrefix + f.Namespace + "." + f.Name
	}
	switch name {
	case HTTPCustomRules, HTTPAudit, HTTPDeny, HTTPAllow:
		return "envoy.filters.http.rbac"
	case HTTPCustomCheck:
		return "envoy.filters.http.ext_authz"
	case HTTPTokens:
		return "envoy.filters.http.jwt_authn"
	case TCPCustomRules, TCPAudit, TCPDeny, TCPAllow:
		return "envoy.filters.network.rbac"
	case TCPCustomCheck:
		return "envoy.filters.network.ext_authz"
	}
	return ""
}

// pluginPrefix begins the names of the filters of WasmPlugins. (Istio: WasmPluginResourceNamePrefix.)
const pluginPrefix = "extensions.istio.io/wasmplugin/"

// The ends of such names, for plugins that look at bytes and for those that let pass what they cannot
// judge. So each name stands for one type of filter, and says what may stand in for the plugin.
const (
	networkPlugin = "#network"
	openPlugin    = "#open"
)

// PluginFilter is the filter of a WasmPlugin.
type PluginFilter struct {
	Namespace, Name string
	// Network: it looks at the bytes of connections, and not at requests.
	Network bool
	// Open: what the plugin cannot judge passes.
	Open bool
}

// String is the name of the filter, by which its configuration comes (ECDS).
func (f PluginFilter) String() string {
	out := pluginPrefix + f.Namespace + "." + f.Name
	if f.Network {
		out += networkPlugin
	}
	if f.Open {
		out += openPlugin
	}
	return out
}

// ParsePluginFilter reads the name of a filter of a WasmPlugin; false for other names.
func ParsePluginFilter(name string) (f PluginFilter, ok bool) {
	rest, ok := strings.CutPrefix(name, pluginPrefix)
	if !ok {
		return PluginFilter{}, false
	}
	rest, f.Open = strings.CutSuffix(rest, openPlugin)
	rest, f.Network = strings.CutSuffix(rest, networkPlugin)
	f.Namespace, f.Name, ok = strings.Cut(rest, ".")
	return f, ok
}
