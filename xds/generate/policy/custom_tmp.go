package policy

import (
	"strings"

	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

const customPrefix = "istio_ext_authz_"

// The namespaces of the dynamic metadata that RBAC filters set.
const (
	HTTPMetadata    = "envoy.filters.http.rbac"
	NetworkMetadata = "envoy.filters.network.rbac"
)

// Custom is temporary.
func Custom(policies []*config.Config, provider string, o Options) *httprbac.RBAC {
	return &httprbac.RBAC{ShadowRules: customRules(provider, HTTP(ofProvider(policies, provider), security.AuthorizationPolicy_DENY, o).GetRules()), ShadowRulesStatPrefix: customPrefix}
}

// CustomNetwork is temporary.
func CustomNetwork(policies []*config.Config, provider string, o Options) *networkrbac.RBAC {
	return &networkrbac.RBAC{
		StatPrefix:  "tcp.",
		ShadowRules: customRules(provider, Network(ofProvider(policies, provider), security.AuthorizationPolicy_DENY, o).GetRules()), ShadowRulesStatPrefix: customPrefix,
	}
}

func ofProvider(policies []*config.Config, provider string) (out []*config.Config) {
	for _, c := range policies {
		if c.Spec.(*security.AuthorizationPolicy).GetProvider().GetName() == provider {
			out = append(out, c)
		}
	}
	return out
}

// customRules gives the rules the names of CUSTOM policies.
func customRules(provider string, from *rbacconfigv3.RBAC) *rbacconfigv3.RBAC {
	if from == nil {
		return nil
	}
	out := &rbacconfigv3.RBAC{Action: from.GetAction(), Policies: map[string]*rbacconfigv3.Policy{}}
	for key, p := range from.GetPolicies() {
		out.Policies["istio-ext-authz-"+provider+"-"+strings.TrimPrefix(key, "istio-ext-authz-")] = p
	}
	return out
}
