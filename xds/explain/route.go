package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// route describes the route of a result, nil for none.
func (e *explainer) route(p *simulate.Proxy, result simulate.Result) *Route {
	if result.Action == nil {
		return nil
	}
	out := &Route{Name: result.Route}
	if result.Fault != nil {
		out.Fault = result.Fault.String()
	}
	for _, m := range result.Mirrors {
		out.Mirrors = append(out.Mirrors, m.String())
		to := e.destination(p, simulate.Destination{Cluster: m.Cluster, Endpoints: p.EndpointsOf(m.Cluster)}, simulate.Result{Action: result.Action})
		if lost := destinationName(to) + ": " + to.Fails; to.Fails != "" && !slices.Contains(out.MirrorsLost, lost) {
			out.MirrorsLost = append(out.MirrorsLost, lost)
		}
	}
	if vs := e.virtualService(result.Action); vs != nil {
		out.Object, out.Source = vs.Key().String(), vs.Config.Source
		if place, ok := e.placeOf(vs, result.Action); ok && vs.Derived != nil {
			from := vs.Derived.Routes[place.Block]
			out.Object, out.Field = from.Ingress.String(), from.Field
			if written := e.push.Inputs().Configs.Get(from.Ingress); written != nil {
				out.Source = written.Source
			}
		} else if ok {
			e.writtenAt(out, vs, place, result.Action)
		}
	}
	action := result.Action.GetRoute()
	if action == nil {
		return out
	}
	out.Timeout = durationText(cmp.Or(action.GetTimeout().AsDuration(), action.GetMaxStreamDuration().GetGrpcTimeoutHeaderMax().AsDuration()))
	if retry := action.GetRetryPolicy(); retry != nil {
		out.Retries, out.RetryOn = retry.GetNumRetries().GetValue(), retry.GetRetryOn()
		out.PerTryTimeout = durationText(retry.GetPerTryTimeout().AsDuration())
	}
	out.HostRewritten = action.GetHostRewriteLiteral()
	if action.GetPrefixRewrite() != "" || action.GetRegexRewrite() != nil {
		out.PathRewritten = result.Path
	}
	return out
}

// writtenAt adds where a route of a VirtualService comes from: the VirtualService or a
// delegate.
func (e *explainer) writtenAt(out *Route, vs *routing.VirtualService, place virtualhost.Place, route *routev3.Route) {
	origin, match := vs.Origin(place.Block), routing.MatchOrigin{Of: -1, Root: -1}
	if place.Match >= 0 {
		match = origin.Match(place.Match)
	}
	at := func(of *routing.VirtualService, block, match int, object string) string {
		field := fmt.Sprintf("spec.http[%d]", block)
		if e.proxy.Type == discovery.Proxyless {
			out.NotTaken = append(out.NotTaken, notTakenOfRoute(of.Written.GetHttp()[block], object+field, route.GetRoute())...)
		}
		if match >= 0 {
			field += fmt.Sprintf(".match[%d]", match)
		}
		return field
	}
	out.Field = at(origin.Of, origin.Block, match.Of, "")
	if origin.Of.IsDelegate() {
		out.Root, out.Object = out.Object, origin.Of.Config.Key().String()
		out.Source = origin.Of.Config.Source
		out.RootField = at(vs, origin.Root, match.Root, out.Root+" ")
	}
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// virtualService returns the VirtualService that a route came from, nil for none.
func (e *explainer) virtualService(route *routev3.Route) *routing.VirtualService {
	key, ok := generate.KeyOfPath(message.ConfigOf(route.GetMetadata()))
	if !ok || key.Kind != schema.VirtualService {
		return nil
	}
	return e.push.VirtualService(key.Path())
}

// placeOf finds where a VirtualService has a route.
func (e *explainer) placeOf(vs *routing.VirtualService, route *routev3.Route) (virtualhost.Place, bool) {
	type from struct {
		gateway string
		port    int
	}
	places := []from{{mesh.MeshGateway, e.port}}
	if e.proxy.Type == discovery.Router {
		places = nil
		for _, l := range e.gatewayListeners() {
			for _, s := range l.Servers {
				if p := (from{s.Gateway.Name(), s.Port()}); !slices.Contains(places, p) {
					places = append(places, p)
				}
			}
		}
	}
	for _, p := range places {
		for place, options := range virtualhost.Places(e.view(), p.gateway, p.port, e.tls, vs) {
			if slices.ContainsFunc(e.rendered(options), func(r *routev3.Route) bool { return proto.Equal(r, route) }) {
				return place, true
			}
		}
	}
	return virtualhost.Place{}, false
}

// rendered returns the routes that a client of the proxy's type gets for some options.
func (e *explainer) rendered(o envoy.RouteOptions) []*routev3.Route {
	if e.proxy.Type == discovery.Proxyless {
		return envoy.GRPCRoutes(o, e.host, uint32(e.port))
	}
	return []*routev3.Route{envoy.Route(o)}
}

func (e *explainer) destination(p *simulate.Proxy, d simulate.Destination, result simulate.Result) Destination {
	var sum float64
	for _, other := range result.Destinations {
		sum += float64(other.Weight)
	}
	out := Destination{
		Cluster: d.Cluster, Percent: 100, Endpoints: d.Endpoints,
		Services: e.objects(resource.ClusterType, d.Cluster, schema.ServiceEntry),
		Rules:    e.objects(resource.ClusterType, d.Cluster, schema.DestinationRule),
	}
	if len(result.Destinations) > 1 {
		out.Percent = 100 * float64(d.Weight) / sum
	}
	if ref, ok := names.ParseCluster(d.Cluster); ok {
		out.Host, out.Port, out.Subset = ref.Host, int(ref.Port), ref.Subset
	}
	cluster := p.Cluster(d.Cluster)
	if cluster == nil {
		if out.Fails = e.missing(out); d.Cluster == names.BlackHoleCluster {
			out.Fails = e.noDestination(result)
		}
		return out
	}
	if e.proxy.Type == discovery.Proxyless {
		out.NotTaken = notTakenOfRule(e.view(), d.Cluster)
	}
	if out.LoadBalancer = cluster.GetLbPolicy().String(); cluster.GetLoadBalancingPolicy() != nil { // of a gRPC client
		out.LoadBalancer = clusterv3.Cluster_LEAST_REQUEST.String()
	}
	var unencrypted string
	out.TLS, unencrypted = e.encryption(d.Cluster)
	assignment := cluster.GetLoadAssignment()
	if eds := cluster.GetEdsClusterConfig(); eds != nil {
		assignment = p.Assignment(cmp.Or(eds.GetServiceName(), d.Cluster))
	}
	out.Localities, out.LeftOut = localities(assignment), e.leftOut(out)
	out.Preference = e.preference(d.Cluster, out.Localities)
	switch {
	case e.proxy.Type == discovery.Proxyless && out.TLS != "":
		out.Fails = "its rule asks for TLS, which gRPC clients are not given: they get no endpoint"
	case unencrypted != "":
		out.Fails = "it must be encrypted, and is sent nowhere: " + unencrypted
	case d.Cluster == names.BlackHoleCluster:
		out.Fails = e.noDestination(result)
	case cluster.GetType() == clusterv3.Cluster_ORIGINAL_DST && (e.via != "" || !e.view().Shape().Captures()):
		out.Fails = "the requests go on to the client's destination, which only a proxy that captures traffic knows"
		if name := host.Name(e.host); e.push.Host(name) == nil && e.lostAlias() == "" {
			out.Fails = fmt.Sprintf("there is no service %s: %s", e.host, out.Fails)
		}
	case cluster.GetType() == clusterv3.Cluster_ORIGINAL_DST:
		if e.dialed != "" {
			out.Endpoints = []string{e.dialed}
		}
	case len(d.Endpoints) == 0 && simulate.ResolvesHosts(cluster) && result.Action != nil:
		out.Fails = fmt.Sprintf("the proxy does not look hosts up on port %d: no service with resolution DYNAMIC_DNS has it", e.port)
	case len(d.Endpoints) == 0 && simulate.ResolvesHosts(cluster):
		out.Fails = "the connection names no host that the proxy could look up"
	case len(d.Endpoints) == 0 && len(out.Localities) == 0 && len(out.LeftOut) > 0:
		out.Fails = "it has no endpoint, as none of its workloads is known to be healthy"
	case len(d.Endpoints) == 0 && len(out.Localities) == 0:
		out.Fails = "it has no endpoint"
	case len(d.Endpoints) == 0:
		out.Fails = "none of its endpoints is healthy"
	}
	return out
}

// localities counts the endpoints of an assignment.
func localities(assignment *endpointv3.ClusterLoadAssignment) []Locality {
	var out []Locality
	for _, at := range assignment.GetEndpoints() {
		l := at.GetLocality()
		one := Locality{
			Locality: discovery.LocalityOf(l.GetRegion(), l.GetZone(), l.GetSubZone()),
			Total:    len(at.GetLbEndpoints()), Priority: at.GetPriority(), Weight: at.GetLoadBalancingWeight().GetValue(),
		}
		for _, endpoint := range at.GetLbEndpoints() {
			if s := endpoint.GetHealthStatus(); s == corev3.HealthStatus_UNKNOWN || s == corev3.HealthStatus_HEALTHY {
				one.Healthy++
			}
		}
		out = append(out, one)
	}
	return out
}

// noDestination says why a request has no destination, or one without endpoints.
func (e *explainer) noDestination(result simulate.Result) string {
	switch {
	case result.FilterChain == names.VirtualOutboundBlackHole || result.FilterChain == names.VirtualInboundBlackHole:
		return fmt.Sprintf("port %d is that of the proxy's own listener", e.port)
	case e.proxy.Type != discovery.Proxyless:
		return "no service takes this, and the outbound traffic policy REGISTRY_ONLY lets nothing else pass"
	case e.virtualService(result.Action) != nil:
		return "gRPC clients follow no redirect and know no direct response: the call fails as unavailable"
	default:
		return "no route of the VirtualService matches: the call fails as unavailable"
	}
}

// missing says why the proxy lacks a cluster.
func (e *explainer) missing(d Destination) string {
	name := host.Name(d.Host)
	service := e.view().Service(name)
	alias, isAlias := e.view().Alias(name)
	switch {
	case d.Host == "":
		return "the proxy has no cluster of this name"
	case isAlias && alias.Of == "":
		return lostAlias(e.view(), name)
	case isAlias:
		return fmt.Sprintf("%s is an alias of %s, and no route leads to an alias: name %s in the route", d.Host, alias.Of, alias.Of)
	case service == nil && e.push.Host(name) != nil:
		return fmt.Sprintf("the proxy does not see service %s: look at exportTo of its ServiceEntry and at the Sidecar of the workload", d.Host)
	case service == nil:
		return fmt.Sprintf("there is no service %s", d.Host)
	}
	if e.proxy.Type == discovery.Proxyless && service.Service().Resolution == discovery.DynamicDNS {
		return fmt.Sprintf("service %s has resolution DYNAMIC_DNS, which gRPC clients have nothing like", d.Host)
	}
	if _, ok := service.Port(d.Port); !ok {
		return fmt.Sprintf("service %s has no port %d", d.Host, d.Port)
	}
	if d.Subset != "" && e.view().Rule(service).Subset(d.Subset) == nil {
		return fmt.Sprintf("no DestinationRule that applies has subset %s of %s", d.Subset, d.Host)
	}
	return "it has no endpoint"
}
