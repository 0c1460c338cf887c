package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Mirror sends copies of requests to a cluster and ignores the responses.
type Mirror struct {
	Cluster    string
	Percentage float64 // the share of requests that are copied, from 0 to 100
}

// mirrorPolicies renders the mirrors, except those that get no request. The copies have
// the host of the request, and are not traced.
func mirrorPolicies(mirrors []Mirror) []*routev3.RouteAction_RequestMirrorPolicy {
	var out []*routev3.RouteAction_RequestMirrorPolicy
	for _, m := range mirrors {
		share := fractionalPercent(m.Percentage)
		if share.GetNumerator() == 0 {
			continue
		}
		out = append(out, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster:         m.Cluster,
			RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: share},
			TraceSampled:    wrapperspb.Bool(false),

			DisableShadowHostSuffixAppend: true,
		})
	}
	return out
}
