package policy

import (
	"maps"
	"slices"
	"strings"

	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// The metadata that the filter of selected requests leaves, and how it begins. (Istio: extauthz.go.)
const (
	selectedKey    = customPrefix + "shadow_effective_policy_id"
	selectedPrefix = "istio-ext-authz-"
)

// refusedSuffix ends the names of policies whose provider cannot be asked. (Istio: badCustomActionSuffix.)
const refusedSuffix = "-deny-due-to-bad-CUSTOM-action"

// custom makes the filter of a slot for CUSTOM policies: what selects, or what asks about what is
// selected.
//
// What selects does not depend on the provider, and what asks takes whatever was selected. So a
// request between two updates is answered as before or as after, and none goes without an answer
// because a provider changes.
func (s Slot) custom(v *mesh.View, policies []*config.Config, o Options) (proto.Message, []resource.Need) {
	selected := s.selected(policies, o)
	if !s.asks || selected == nil {
		return s.rbac(nil, selected), nil
	}
	providers := providersOf(policies)
	if len(providers) == 1 {
		if asked, ok := findProvider(v, providers[0]); ok {
			return s.check(asked)
		}
	}
	return s.rbac(refused(s.metadata(), selected), nil), nil
}

// selected returns the rules of policies, nil for none.
func (s Slot) selected(policies []*config.Config, o Options) *rbacconfigv3.RBAC {
	var out *rbacconfigv3.RBAC
	for _, provider := range providersOf(policies) {
		var rules *rbacconfigv3.RBAC
		if s.tcp {
			rules = CustomNetwork(policies, provider, o).GetShadowRules()
		} else {
			rules = Custom(policies, provider, o).GetShadowRules()
		}
		if out == nil {
			out = rules
		} else {
			maps.Copy(out.Policies, rules.GetPolicies())
		}
	}
	return out
}

// rbac makes the RBAC of a slot. Without rules it does nothing.
func (s Slot) rbac(rules, selects *rbacconfigv3.RBAC) proto.Message {
	var prefix string
	if selects != nil {
		prefix = customPrefix
	}
	if s.tcp {
		return &networkrbacv3.RBAC{Rules: rules, ShadowRules: selects, ShadowRulesStatPrefix: prefix, StatPrefix: envoy.TCPRBACStatPrefix}
	}
	return &httprbacv3.RBAC{Rules: rules, ShadowRules: selects, ShadowRulesStatPrefix: prefix}
}

// check makes the filter that asks a provider. Connections cannot be asked about over HTTP, and
// pass, as in Istio.
func (s Slot) check(p envoy.Authorizer) (proto.Message, []resource.Need) {
	p.Selected = matchSelected(s.metadata(), &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: selectedPrefix}})
	switch {
	case !s.tcp:
		return p.HTTPFilter(), resource.TrafficTo([]string{p.Cluster})
	case p.GRPC == nil:
		return s.rbac(nil, nil), nil
	}
	return p.NetworkFilter(), resource.TrafficTo([]string{p.Cluster})
}

// metadata is the namespace of the metadata that RBAC filters of the slot's kind set.
func (s Slot) metadata() string {
	if s.tcp {
		return NetworkMetadata
	}
	return HTTPMetadata
}

// refused makes rules that refuse what others have selected, each by its name.
func refused(metadata string, selected *rbacconfigv3.RBAC) *rbacconfigv3.RBAC {
	out := &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_DENY, Policies: map[string]*rbacconfigv3.Policy{}}
	for _, name := range slices.Sorted(maps.Keys(selected.GetPolicies())) {
		match := matchSelected(metadata, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}})
		out.Policies[name+refusedSuffix] = &rbacconfigv3.Policy{
			Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Metadata{Metadata: match}}},
			Principals:  []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_Any{Any: true}}},
		}
	}
	return out
}

func matchSelected(metadata string, value *matcherv3.StringMatcher) *matcherv3.MetadataMatcher {
	return &matcherv3.MetadataMatcher{
		Filter: metadata,
		Path:   []*matcherv3.MetadataMatcher_PathSegment{{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: selectedKey}}},
		Value:  &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: value}},
	}
}

// providersOf returns the names of the providers that CUSTOM policies ask, in order.
func providersOf(policies []*config.Config) []string {
	var out []string
	for _, c := range policies {
		out = append(out, c.Spec.(*securityv1beta1.AuthorizationPolicy).GetProvider().GetName())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// findProvider returns how to ask the provider with a name; false if the mesh configuration has
// none, or the proxy does not see its service and port.
func findProvider(v *mesh.View, name string) (envoy.Authorizer, bool) {
	p := v.Mesh(mesh.ExtensionProviders).Authorizer(name)
	if p == nil {
		return envoy.Authorizer{}, false
	}
	a := envoy.Authorizer{HTTP: p.GetEnvoyExtAuthzHttp(), GRPC: p.GetEnvoyExtAuthzGrpc()}
	cluster, ok := providerCluster(v, a.Service(), a.Port())
	a.Cluster = cluster
	return a, ok
}

// providerCluster returns the cluster of a service, [namespace/]host, and a port.
func providerCluster(v *mesh.View, service string, number uint32) (string, bool) {
	namespace, name, ok := strings.Cut(service, "/")
	if !ok {
		namespace, name = "", service
	}
	row := v.Service(host.Name(name))
	if row == nil || namespace != "" && row.Namespace != namespace {
		return "", false
	}
	port, ok := row.Port(int(number))
	if !ok || !port.Protocol.IsServed() {
		return "", false
	}
	return names.Cluster(names.Outbound, number, "", name), true
}
