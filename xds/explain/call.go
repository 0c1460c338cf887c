package explain

import (
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// This file finds the fields of an object that a gRPC client ignores, as
// docs/operations/grpc.md lists them. Verdicts report fields that no proxy supports.

// notTakenOfRoute returns the fields of the HTTP route at a path that a gRPC client ignores.
// action is the route's action as the client gets it.
func notTakenOfRoute(http *networking.HTTPRoute, at string, action *routev3.RouteAction) []string {
	out := verdict.NotForGRPC(http, at)
	taken := strings.Split(action.GetRetryPolicy().GetRetryOn(), ",")
	for condition := range strings.SplitSeq(http.GetRetries().GetRetryOn(), ",") {
		if condition = strings.TrimSpace(condition); condition != "" && !slices.Contains(taken, condition) {
			out = append(out, fmt.Sprintf("%s.retries.retryOn: %s", at, condition))
		}
	}
	return out
}

// notTakenOfRule returns the fields of a cluster's traffic policy that a gRPC client ignores.
func notTakenOfRule(v *mesh.View, name string) []string {
	o, ok := cluster.Find(v, name)
	if !ok {
		return nil
	}
	policy, out := o.Policy(), []string(nil)
	if simple := policy.GetLoadBalancer().GetSimple(); simple == networking.LoadBalancerSettings_RANDOM || simple == networking.LoadBalancerSettings_PASSTHROUGH {
		out = append(out, "trafficPolicy.loadBalancer.simple: "+simple.String())
	}
	out = append(out, verdict.SetFields(policy.GetLoadBalancer().GetConsistentHash(), "trafficPolicy.loadBalancer.consistentHash", "maglev", "httpCookie", "httpQueryParameterName")...)
	out = append(out, verdict.SetFields(policy.GetConnectionPool(), "trafficPolicy.connectionPool", "tcp")...)
	const http = "trafficPolicy.connectionPool.http"
	for _, field := range verdict.SetFields(policy.GetConnectionPool().GetHttp(), http) {
		if field != http+".http2MaxRequests" {
			out = append(out, field)
		}
	}
	out = append(out, verdict.SetFields(policy, "trafficPolicy", "outlierDetection")...)
	switch policy.GetTls().GetMode() {
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		out = append(out, "trafficPolicy.tls")
	}
	return out
}
