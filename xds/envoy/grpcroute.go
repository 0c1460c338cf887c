package envoy

import (
	"regexp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/names"
)

// GRPCRouteConfigOptions describe the routes of a gRPC client's target.
type GRPCRouteConfigOptions struct {
	Name string
	// Host and Port are the target. The authority of calls is the host, with or without
	// the port.
	Host string
	Port uint32
	// Routes are the descriptions that [Route] renders for Envoy.
	Routes []RouteOptions
	// Announced are clusters that the client should know; see AnnounceClusters.
	Announced []string
}

// GRPCRouteConfig makes the routes of a gRPC client. The client refuses a resource with
// unknown parts, so the routes contain only what gRPC knows. A route whose action gRPC
// lacks leads nowhere. A match that no call can meet is omitted.
//
// The one virtual host has the domain "*", since the client found it by its target, and
// calls may have another authority.
func GRPCRouteConfig(o GRPCRouteConfigOptions) *routev3.RouteConfiguration {
	all := &routev3.VirtualHost{Name: names.HostPort(o.Host, o.Port), Domains: []string{"*"}}
	for _, r := range o.Routes {
		all.Routes = append(all.Routes, GRPCRoutes(r, o.Host, o.Port)...)
	}
	out := RouteConfig(RouteConfigOptions{Name: o.Name, MatchPort: true, VirtualHosts: []*routev3.VirtualHost{all}})
	AnnounceClusters(out, o.Announced)
	return out
}

// AnnounceClusters adds routes that get no calls for the clusters without routes. So the
// client has a cluster before the route that sends calls there. (The Go library fails
// calls between a new route and its new cluster.)
func AnnounceClusters(config *routev3.RouteConfiguration, clusters []string) {
	for _, virtualHost := range config.GetVirtualHosts() {
		var idle []*routev3.RouteAction
		used := ClustersOf(virtualHost)
		for _, name := range clusters {
			if !slices.Contains(used, name) {
				idle = append(idle, &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}})
			}
		}
		if n := len(virtualHost.Routes); len(idle) > 0 && (n == 0 || !takesEveryCall(virtualHost.Routes[n-1].GetMatch())) {
			idle = slices.Insert(idle, 0, grpcNowhere())
		}
		for _, action := range idle {
			virtualHost.Routes = append(virtualHost.Routes, grpcRoute(MatchOptions{}.routeMatch(), action))
		}
	}
}

// takesEveryCall says whether routes after this rendered match get no call.
func takesEveryCall(m *routev3.RouteMatch) bool {
	if len(m.GetHeaders()) > 0 {
		return false
	}
	return m.GetPrefix() == "/" || m.GetSafeRegex().GetRegex() == ".*"
}

// EmptyGRPCRouteConfig makes routes that lead nowhere. (In the JavaScript library a call
// without a route waits.)
func EmptyGRPCRouteConfig(name string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: names.BlockAllVirtualHost, Domains: []string{"*"},
		Routes: []*routev3.Route{grpcRoute(MatchOptions{}.routeMatch(), grpcNowhere())},
	}}}
}

func grpcRoute(match *routev3.RouteMatch, action *routev3.RouteAction) *routev3.Route {
	return &routev3.Route{Name: names.DefaultRoute, Match: match, Action: &routev3.Route_Route{Route: action}}
}

// grpcNowhere makes calls fail at once as unavailable: it sends them to the cluster
// without endpoints, names.BlackHoleCluster. Only this works alike in every library; the
// JavaScript library crashes on a route that does not forward.
func grpcNowhere() *routev3.RouteAction {
	return &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: names.BlackHoleCluster}}
}

// GRPCRoutes renders a route for a gRPC client of a target: one route for each
// alternative of its match, none if it matches no call.
func GRPCRoutes(o RouteOptions, host string, port uint32) []*routev3.Route {
	action := grpcNowhere()
	if o.forwards() {
		action = o.Forward.grpcAction()
	}
	authorities := []string{host, names.HostPort(host, port)}
	var out []*routev3.Route
	for _, match := range o.Match.grpcMatches(authorities) {
		r := grpcRoute(match, action)
		r.Name, r.Metadata, r.TypedPerFilterConfig = o.name(), message.ConfigMetadata(o.Config), o.Fault.perRoute()
		out = append(out, r)
	}
	return out
}

// grpcAction keeps the parts of forwarding that gRPC knows: clusters, a timeout, retries
// and the hash.
func (f *Forward) grpcAction() *routev3.RouteAction {
	out := &routev3.RouteAction{
		// A limit of 0 means only the client's own limit.
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: durationpb.New(f.Timeout)},
		RetryPolicy:       f.Retry.grpcPolicy(),
	}
	clusters := slices.Clone(f.clusters())
	for i := range clusters {
		clusters[i].Headers = Headers{}
	}
	specifyClusters(out, clusters, false) // gRPC knows no use_hash_policy
	for _, h := range f.HashPolicies {
		switch {
		case h.Header != "":
			out.HashPolicy = append(out.HashPolicy, h.route())
		case h.SourceIP:
			// The channel stands for the client's address.
			out.HashPolicy = append(out.HashPolicy, &routev3.RouteAction_HashPolicy{
				PolicySpecifier: &routev3.RouteAction_HashPolicy_FilterState_{
					FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
				},
			})
		}
	}
	return out
}

// grpcRetryConditions are the retry conditions that gRPC knows.
var grpcRetryConditions = []string{"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}

// grpcPolicy keeps only the conditions that gRPC knows, nil if there are none.
func (o *RetryOptions) grpcPolicy() *routev3.RetryPolicy {
	from := o.policy()
	var on []string
	for condition := range strings.SplitSeq(from.GetRetryOn(), ",") {
		if slices.Contains(grpcRetryConditions, condition) {
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

// grpcMatches returns matches that together match the same calls as o, none if o matches
// no call. A call has no query parameters, and a client verifies no token.
func (o MatchOptions) grpcMatches(authorities []string) []*routev3.RouteMatch {
	if len(o.QueryParameters)+len(o.Claims) > 0 {
		return nil
	}
	alternatives := [][]*routev3.HeaderMatcher{nil}
	for _, h := range o.headers() {
		if values, constant := grpcConstants(h.Name, authorities); constant {
			if !slices.ContainsFunc(values, h.meets) {
				return nil
			}
			continue
		}
		alternatives = combine(alternatives, grpcHeader(h))
	}
	var out []*routev3.RouteMatch
	for _, headers := range alternatives {
		m := o.pathMatch()
		m.Headers = headers
		out = append(out, m)
	}
	return out
}

// grpcConstants returns the values of a header that is the same in every call, but that a
// client cannot match. It returns false for other headers.
func grpcConstants(header string, authorities []string) ([]string, bool) {
	switch header {
	case ":method":
		return []string{"POST"}, true
	case ":scheme":
		return []string{"http"}, true
	case authorityHeader:
		return authorities, true
	}
	return nil, false
}

func (m NamedMatch) meets(value string) bool {
	meets := true
	switch {
	case m.any():
	case m.Kind == Prefix:
		meets = strings.HasPrefix(value, m.Value)
	case m.Kind == Regex:
		expression, err := regexp.Compile("^(?:" + m.Value + ")$")
		meets = err == nil && expression.MatchString(value)
	default:
		meets = value == m.Value
	}
	return meets != m.Invert
}

// grpcHeader returns the matchers, as alternatives, that mean the same in gRPC: there a
// missing header never matches, even if inverted.
// https://github.com/grpc/grpc-go/pull/6313
func grpcHeader(m NamedMatch) []*routev3.HeaderMatcher {
	m.Name = strings.ToLower(m.Name)
	compared := header(m)
	compared.TreatMissingHeaderAsEmpty = false
	if !m.Invert || m.any() {
		return []*routev3.HeaderMatcher{compared}
	}
	return []*routev3.HeaderMatcher{header(NamedMatch{Name: m.Name, Invert: true}), compared}
}

// combine extends each list with each of the alternatives.
func combine(lists [][]*routev3.HeaderMatcher, either []*routev3.HeaderMatcher) [][]*routev3.HeaderMatcher {
	var out [][]*routev3.HeaderMatcher
	for _, list := range lists {
		for _, m := range either {
			out = append(out, append(slices.Clone(list), m))
		}
	}
	return out
}
