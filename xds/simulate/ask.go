package simulate

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/portolan-mesh/portolan/xds/names"
)

// Asked is a question to an external authorizer about a request or a connection. Its answer is not
// known: the simulation goes on as if it allowed what it is asked about.
type Asked struct {
	// Filter is the name of the filter that asks, and Cluster the authorizer's.
	Filter, Cluster string
	// Policy is the name of the rule that selected what is asked about.
	Policy string
}

// asking is a filter that asks an external authorizer about requests or connections.
type asking interface {
	GetFilterEnabledMetadata() *matcherv3.MetadataMatcher
	GetGrpcService() *corev3.GrpcService
}

// askGuard asks about what a filter before it has selected.
type askGuard struct {
	name, cluster string
	selected      *matcherv3.MetadataMatcher
}

// newAskGuard fails on what the simulation does not know.
func newAskGuard(name string, config asking) (askGuard, error) {
	g := askGuard{name, config.GetGrpcService().GetEnvoyGrpc().GetClusterName(), config.GetFilterEnabledMetadata()}
	if http, ok := config.(*httpauthzv3.ExtAuthz); ok && g.cluster == "" {
		g.cluster = http.GetHttpService().GetServerUri().GetCluster()
	}
	if g.cluster == "" || g.selected == nil {
		return askGuard{}, fmt.Errorf("simulation of the filter %s, which asks about everything, or no cluster", name)
	}
	return g, nil
}

// pass implements guard.
func (g askGuard) pass(a *attributes, result *Result) bool {
	ok, err := a.request.metadataMatches(g.selected)
	if err != nil {
		result.Err = fmt.Errorf("filter %s: %w", g.name, err)
		return false
	}
	if ok {
		result.Asked = &Asked{Filter: g.name, Cluster: g.cluster}
		for _, d := range result.Access {
			if d.Shadow && strings.HasPrefix(d.Policy, names.CustomPrefix) {
				result.Asked.Policy = d.Policy
			}
		}
	}
	return true
}
