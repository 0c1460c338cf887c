package simulate

import (
	"fmt"

	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
)

// The names of filters under which an RBAC filter leaves metadata, and the key of the shadow rule
// that matched, behind a prefix. (Envoy: RoleBasedAccessControlFilter, DynamicMetadataKeys.)
const (
	requestAccessMetadata    = "envoy.filters.http.rbac"
	connectionAccessMetadata = "envoy.filters.network.rbac"
	shadowPolicyKey          = "shadow_effective_policy_id"
	// selectedPrefix is the prefix where shadow rules select what an authorizer is asked about.
	selectedPrefix = "istio_ext_authz_"
)

// remember leaves the shadow rule that matched in the metadata of a request or a connection.
func (a *attributes) remember(prefix, policy string) {
	filter := requestAccessMetadata
	if a.connection {
		filter = connectionAccessMetadata
	}
	a.request = a.request.withMetadata(filter, prefix+shadowPolicyKey, policy)
}

// authorizer is a filter that asks an external authorizer.
type authorizer interface {
	proto.Message
	GetFilterEnabledMetadata() *matcherv3.MetadataMatcher
}

// askGuard is a filter that asks an external authorizer about what rules before it select.
type askGuard struct {
	name   string
	config authorizer
}

// newAskGuard fails on a filter that asks about everything.
func newAskGuard(name string, config authorizer) (askGuard, error) {
	if config.GetFilterEnabledMetadata() == nil {
		return askGuard{}, fmt.Errorf("simulation of the filter %s without filter_enabled_metadata", name)
	}
	return askGuard{name, config}, nil
}

// pass implements guard. The request goes on, as if the authorizer let it pass.
func (g askGuard) pass(a *attributes, result *Result) bool {
	asks, err := a.request.metadataMatches(g.config.GetFilterEnabledMetadata())
	if err != nil {
		result.Err = fmt.Errorf("filter %s: %w", g.name, err)
		return false
	}
	result.Asked = result.Asked || asks
	return true
}

var (
	_ authorizer = (*httpauthzv3.ExtAuthz)(nil)
	_ authorizer = (*networkauthzv3.ExtAuthz)(nil)
)
