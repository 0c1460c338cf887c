package policy

import (
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Options is temporary.
type Options struct {
	TrustDomains  []string
	RootNamespace string
}

func rules(policies []*config.Config, action security.AuthorizationPolicy_Action) *rbacconfigv3.RBAC {
	if len(policies) == 0 {
		return nil
	}
	out := &rbacconfigv3.RBAC{Policies: map[string]*rbacconfigv3.Policy{}}
	switch action {
	case security.AuthorizationPolicy_DENY:
		out.Action = rbacconfigv3.RBAC_DENY
	case security.AuthorizationPolicy_AUDIT:
		out.Action = rbacconfigv3.RBAC_LOG
	}
	for _, p := range policies {
		for range p.Spec.(*security.AuthorizationPolicy).GetRules() {
			out.Policies["ns["+p.Namespace+"]-policy["+p.Name+"]-rule[0]"] = &rbacconfigv3.Policy{
				Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Any{Any: true}}},
				Principals:  []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_Any{Any: true}}},
			}
		}
	}
	return out
}

// HTTP is temporary.
func HTTP(policies []*config.Config, action security.AuthorizationPolicy_Action, o Options) *httprbac.RBAC {
	return &httprbac.RBAC{Rules: rules(policies, action)}
}

// Network is temporary.
func Network(policies []*config.Config, action security.AuthorizationPolicy_Action, o Options) *networkrbac.RBAC {
	return &networkrbac.RBAC{Rules: rules(policies, action), StatPrefix: "tcp."}
}
