package envoy

import (
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
)

// identityFilter is the name of the filter that knows who belongs to the mesh.
const identityFilter = "portolan.filters.http.identity"

// IdentityFilter refuses the requests of callers whose certificate has no URI that begins with one
// of the given texts.
func IdentityFilter(prefixes []string) *hcmv3.HttpFilter {
	var members []*rbac.Principal
	for _, prefix := range prefixes {
		members = append(members, rbac.PrincipalName(rbac.Prefix(prefix)))
	}
	policy := rbac.Policy([]*rbac.Permission{rbac.PermissionAny()}, members)
	return RBACFilter(identityFilter, &rbacv3.RBAC{
		Rules: &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_ALLOW, Policies: map[string]*rbacconfigv3.Policy{"mesh": policy}},
	})
}

// RBACFilter makes a filter that judges requests by its own configuration.
func RBACFilter(name string, config *rbacv3.RBAC) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(config)}}
}
