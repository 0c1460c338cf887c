package policy

import (
	"maps"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
	"github.com/portolan-mesh/portolan/xds/generate/providers"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// custom makes the filter of a slot for CUSTOM policies: what selects, or what asks about what is
// selected.
//
// What selects does not depend on the provider, and what asks takes whatever was selected. So a
// request between two updates is answered as before or as after, and none goes without an answer
// because a provider changes.
func (s Slot) custom(v *mesh.View, policies []*config.Config, o Options) (proto.Message, []resource.Need) {
	if s.tcp {
		selects := CustomNetwork(policies, o)
		if s.does != asks {
			return selects, nil
		}
		asked, refused := s.check(v, policies, selects.GetShadowRules())
		if asked == nil || asked.GRPC == nil { // Nobody is asked about connections over HTTP, as in Istio.
			return &networkrbacv3.RBAC{StatPrefix: envoy.TCPRBACStatPrefix, Rules: refused}, nil
		}
		return asked.NetworkFilter(), resource.TrafficTo([]string{asked.Cluster})
	}
	selects := Custom(policies, o)
	if s.does != asks {
		return selects, nil
	}
	asked, refused := s.check(v, policies, selects.GetShadowRules())
	if asked == nil {
		return &httprbacv3.RBAC{Rules: refused}, nil
	}
	return asked.HTTPFilter(), resource.TrafficTo([]string{asked.Cluster})
}

// check returns whom to ask about what is selected. If there is no provider that can be asked, or
// several, it returns the rules that refuse all that is selected. Both are nil if nothing is.
func (s Slot) check(v *mesh.View, policies []*config.Config, selected *rbacv3.RBAC) (*envoy.Authorizer, *rbacv3.RBAC) {
	if selected == nil {
		return nil, nil
	}
	metadata := "envoy.filters.http.rbac"
	if s.tcp {
		metadata = "envoy.filters.network.rbac"
	}
	if providers := providersOf(policies); len(providers) == 1 {
		if asked, ok := FindProvider(v, providers[0]); ok {
			asked.Selected = selectedBy(metadata, rbac.Prefix(names.CustomPrefix))
			return &asked, nil
		}
	}
	out := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for _, name := range slices.Sorted(maps.Keys(selected.GetPolicies())) {
		selects := rbac.PermissionMetadata(selectedBy(metadata, rbac.Exact(name)))
		out.Policies[name+names.UnaskedSuffix] = rbac.Policy([]*rbac.Permission{selects}, []*rbac.Principal{rbac.PrincipalAny()})
	}
	return nil, out
}

// selectedBy matches the name of the rule that has selected a request. (Istio: extauthz.go.)
func selectedBy(metadata string, rule *matcherv3.StringMatcher) *matcherv3.MetadataMatcher {
	return rbac.Metadata(metadata, []string{customPrefix + "shadow_effective_policy_id"}, rbac.Text(rule))
}

// providersOf returns the names of the providers that CUSTOM policies ask, in order.
func providersOf(policies []*config.Config) []string {
	var out []string
	for _, c := range policies {
		if s := specOf(c); s.GetAction() == security.AuthorizationPolicy_CUSTOM {
			out = append(out, s.GetProvider().GetName())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// FindProvider returns how to ask the provider with a name; false if the mesh configuration has
// none, or the proxy does not see its service and port.
func FindProvider(v *mesh.View, name string) (envoy.Authorizer, bool) {
	p := v.Mesh(mesh.ExtensionProviders).Authorizer(name)
	if p == nil {
		return envoy.Authorizer{}, false
	}
	a := envoy.Authorizer{HTTP: p.GetEnvoyExtAuthzHttp(), GRPC: p.GetEnvoyExtAuthzGrpc()}
	var ok bool
	if a.HTTP != nil {
		a.Cluster, ok = providers.Cluster(v, a.HTTP)
	} else {
		a.Cluster, ok = providers.Cluster(v, a.GRPC)
	}
	return a, ok
}
