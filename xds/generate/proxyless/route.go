package proxyless

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Routes makes route configurations, one for each port of a service.
type Routes struct{}

var (
	_ generate.Generator = Routes{}
	_ generate.Emptier   = Routes{}
	_ generate.Announcer = Routes{}
)

// TypeURL implements generate.Generator.
func (Routes) TypeURL() string { return route.TypeURL }

// Affected implements generate.Generator.
func (Routes) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return names(v, d, port.routeConfig)
}

// Build implements generate.Generator. The one virtual host takes all there is,
// since the client found it by the host already, whatever authority it then sends.
func (Routes) Build(v *mesh.View, name string) (*resource.Resource, error) {
	ref, ok := envoy.ParseClusterName(name)
	p := port{ref.Host, int(ref.Port)}
	if !ok || p.routeConfig() != name {
		return nil, nil
	}
	l, service := p.find(v)
	if service == nil {
		return nil, nil
	}
	var routes []*routev3.Route
	for _, r := range virtualhost.RoutesTo(v, l, service, p.number) {
		routes = append(routes, p.translate(r)...)
	}
	all := &routev3.VirtualHost{Name: envoy.HostPort(p.host, uint32(p.number)), Domains: []string{"*"}, Routes: routes}
	announce(all, virtualhost.DestinationsTo(v, l, service, p.number))
	return routesOf(name, all)
}

func routesOf(name string, all *routev3.VirtualHost) (*resource.Resource, error) {
	out, err := resource.New(name, envoy.RouteConfig(envoy.RouteConfigOptions{
		Name: name, MatchPort: true, VirtualHosts: []*routev3.VirtualHost{all},
	}))
	if err != nil {
		return nil, err
	}
	out.Refs = envoy.ClustersOf(all)
	return out, nil
}

// Announce implements generate.Announcer. The new clusters come last, behind a
// route that takes every call.
func (Routes) Announce(has *resource.Resource, clusters []string) (*resource.Resource, error) {
	config := &routev3.RouteConfiguration{}
	if err := has.Body.UnmarshalTo(config); err != nil {
		return nil, fmt.Errorf("routes %s: %w", has.Name, err)
	}
	if len(config.GetVirtualHosts()) != 1 {
		return nil, fmt.Errorf("routes %s: %d virtual hosts, where there should be one", has.Name, len(config.GetVirtualHosts()))
	}
	all := config.GetVirtualHosts()[0]
	announce(all, clusters)
	return routesOf(has.Name, all)
}

// Empty implements generate.Emptier: routes that lead nowhere.
func (Routes) Empty(name string) (*resource.Resource, error) {
	return resource.New(name, envoy.EmptyGRPCRouteConfig(name))
}

// announce adds routes that no call comes to, for those of the clusters that have
// no calls: the client then knows them when they get their share. (The library in
// Go fails calls that come in the moment between a new route and its new cluster.)
// Routes announce by themselves what is likely to come, for a client that comes
// from another server: what it has is not known here.
func announce(to *routev3.VirtualHost, clusters []string) {
	var idle []*routev3.RouteAction
	used := envoy.ClustersOf(to)
	for _, name := range clusters {
		if !slices.Contains(used, name) {
			idle = append(idle, &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}})
		}
	}
	if n := len(to.Routes); len(idle) > 0 && (n == 0 || !envoy.CatchAll(to.Routes[n-1].GetMatch())) {
		idle = slices.Insert(idle, 0, envoy.GRPCNowhere())
	}
	for _, action := range idle {
		to.Routes = append(to.Routes, &routev3.Route{
			Name: envoy.DefaultRouteName, Match: envoy.Match(envoy.MatchOptions{}), Action: &routev3.Route_Route{Route: action},
		})
	}
}

// translate puts a route of a sidecar into what gRPC knows: a route for each match
// that together are its match, none where no call can match.
func (p port) translate(r *routev3.Route) []*routev3.Route {
	action := envoy.GRPCNowhere() // in place of one that gRPC has not
	if forward := r.GetRoute(); forward != nil {
		action = translateAction(forward)
	}
	var out []*routev3.Route
	for _, match := range p.matches(r.GetMatch()) {
		out = append(out, &routev3.Route{
			Name: r.GetName(), Match: match, Metadata: r.GetMetadata(), Action: &routev3.Route_Route{Route: action},
		})
	}
	return out
}

// translateAction keeps what gRPC knows of forwarding: clusters, a limit of time,
// retries, and what is hashed.
func translateAction(from *routev3.RouteAction) *routev3.RouteAction {
	out := &routev3.RouteAction{
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{
			// 0 is no limit but the client's own.
			GrpcTimeoutHeaderMax: durationpb.New(from.GetTimeout().AsDuration()),
		},
		RetryPolicy: translateRetry(from.GetRetryPolicy()),
	}
	if weighted := from.GetWeightedClusters(); weighted != nil {
		clusters := &routev3.WeightedCluster{}
		for _, c := range weighted.GetClusters() {
			clusters.Clusters = append(clusters.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: c.GetName(), Weight: c.GetWeight()})
		}
		out.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: clusters}
	} else {
		out.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: from.GetCluster()}
	}
	for _, h := range from.GetHashPolicy() {
		switch {
		case h.GetHeader() != nil:
			out.HashPolicy = append(out.HashPolicy, h)
		case h.GetConnectionProperties().GetSourceIp():
			out.HashPolicy = append(out.HashPolicy, byChannel())
		}
	}
	return out
}

// byChannel hashes what stands for the client itself.
func byChannel() *routev3.RouteAction_HashPolicy {
	return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_FilterState_{
		FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
	}}
}

// retryConditions are those on which gRPC tries a call again.
var retryConditions = []string{"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}

// translateRetry is nil where gRPC has none of the conditions.
func translateRetry(from *routev3.RetryPolicy) *routev3.RetryPolicy {
	var on []string
	for condition := range strings.SplitSeq(from.GetRetryOn(), ",") {
		if slices.Contains(retryConditions, condition) {
			on = append(on, condition)
		}
	}
	if len(on) == 0 {
		return nil
	}
	return &routev3.RetryPolicy{
		RetryOn: strings.Join(on, ","), NumRetries: from.GetNumRetries(), RetryBackOff: from.GetRetryBackOff(),
	}
}
