package envoy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/names"
)

// RouteConfigOptions describe a route configuration.
type RouteConfigOptions struct {
	Name         string
	VirtualHosts []*routev3.VirtualHost
	// MatchPort also compares the port in a request's host. Without it the port is
	// ignored, and domains have none.
	MatchPort bool
	// MaxDirectResponseBody is the largest body of a direct response, in bytes. By
	// default Envoy refuses more than 4 KiB.
	// https://github.com/envoyproxy/envoy/issues/8104
	MaxDirectResponseBody uint32
	// HTTP3Port is the port on which clients are told that HTTP/3 is served, 0 for none.
	HTTP3Port uint32
	// HostsByDelta makes the client request further virtual hosts as separate resources
	// on the same stream.
	HostsByDelta bool
}

// hostsTimeout is how long a route configuration waits for the first of its separate
// hosts. After that it serves those that it contains.
const hostsTimeout = 10 * time.Second

// RouteConfig makes a route configuration. The clusters that it names need not exist.
func RouteConfig(o RouteConfigOptions) *routev3.RouteConfiguration {
	out := &routev3.RouteConfiguration{
		Name:                           o.Name,
		VirtualHosts:                   o.VirtualHosts,
		ValidateClusters:               wrapperspb.Bool(false),
		IgnorePortInHostMatching:       !o.MatchPort,
		MaxDirectResponseBodySizeBytes: message.Count(o.MaxDirectResponseBody),
	}
	if o.HTTP3Port != 0 { // for a day, as Istio has it (buildHTTP3AltSvcHeader)
		out.ResponseHeadersToAdd = []*corev3.HeaderValueOption{{
			Header:       &corev3.HeaderValue{Key: "alt-svc", Value: fmt.Sprintf(`h3=":%d"; ma=86400`, o.HTTP3Port)},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}}
	}
	if o.HostsByDelta {
		source := message.ADS()
		source.InitialFetchTimeout = durationpb.New(hostsTimeout)
		out.Vhds = &routev3.Vhds{ConfigSource: source}
	}
	return out
}

// VirtualHostOptions describe a virtual host.
type VirtualHostOptions struct {
	Name    string
	Domains []string
	Routes  []RouteOptions
	// RequireTLS redirects every plaintext request to https.
	RequireTLS bool
	// Uncounted tells upstreams nothing of attempts.
	Uncounted bool
}

// VirtualHost makes a virtual host. It tells upstreams the number of attempts in a
// header, unless it is Uncounted. A retry policy that several routes have stands at the host, once.
func VirtualHost(o VirtualHostOptions) *routev3.VirtualHost {
	out := &routev3.VirtualHost{Name: o.Name, Domains: o.Domains, IncludeRequestAttemptCount: !o.Uncounted}
	for _, r := range o.Routes {
		out.Routes = append(out.Routes, Route(r))
	}
	if o.RequireTLS {
		out.RequireTls = routev3.VirtualHost_ALL
	}
	shareRetries(out)
	return out
}

// shareRetries moves the retry policy of the first route that forwards to the virtual host, if
// other routes have the same. It moves none if a route has none: Envoy takes that of the host
// for such a route. The policy of a route outranks that of its host.
func shareRetries(h *routev3.VirtualHost) {
	var first *routev3.RetryPolicy
	var same []*routev3.RouteAction
	for _, r := range h.Routes {
		action := r.GetRoute()
		switch policy := action.GetRetryPolicy(); {
		case action == nil:
			continue
		case policy == nil:
			return
		case first == nil:
			first = policy
			fallthrough
		default:
			if proto.Equal(policy, first) {
				same = append(same, action)
			}
		}
	}
	if len(same) < 2 {
		return
	}
	h.RetryPolicy = first
	for _, action := range same {
		action.RetryPolicy = nil
	}
}

// ClustersOf returns the clusters to which virtual hosts send or mirror requests, sorted.
func ClustersOf(hosts ...*routev3.VirtualHost) []string {
	var out []string
	name := func(cluster string) {
		if cluster != "" {
			out = append(out, cluster)
		}
	}
	for _, h := range hosts {
		for _, r := range h.GetRoutes() {
			name(r.GetRoute().GetCluster())
			for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
				name(c.GetName())
			}
			for _, m := range slices.Concat(h.GetRequestMirrorPolicies(), r.GetRoute().GetRequestMirrorPolicies()) {
				name(m.GetCluster())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// RouteOptions describe a route: its match, and one of Forward, Redirect and
// DirectResponse. A route with none of these, or that forwards to no cluster, answers
// 500. [Route] renders the description for Envoy, [GRPCRouteConfig] for gRPC clients.
type RouteOptions struct {
	Name           string // names.DefaultRoute if empty
	StatPrefix     string // counts the route's requests under this name; empty for none
	Match          MatchOptions
	Forward        *Forward
	Redirect       *Redirect
	DirectResponse *DirectResponse
	Headers        Headers
	Fault          *Fault // nil for none
	CORS           *CORS  // nil for none
	// Operation is the route's name in traces, empty for none.
	Operation string
	// Config is the names.ConfigPath of the object behind the route, empty for none.
	Config string
}

func (o RouteOptions) name() string { return cmp.Or(o.Name, names.DefaultRoute) }

// OperationName names a route in traces: host and port of its only cluster, or, if it has
// several or none, the VirtualService and port; then the path.
func (o RouteOptions) OperationName(virtualService string, port uint32) string {
	path := o.Match.Path.Value
	switch {
	case o.Match.Path.any():
		path = "/*"
	case o.Match.Path.Kind == Prefix:
		path += "*"
	}
	if o.forwards() {
		if clusters := o.Forward.clusters(); len(clusters) == 1 {
			if ref, ok := names.ParseCluster(clusters[0].Name); ok {
				return names.HostPort(ref.Host, ref.Port) + path
			}
		}
	}
	return names.HostPort(virtualService, port) + path
}

// Forward sends requests to clusters.
type Forward struct {
	// Clusters share the requests by weight. A single cluster gets all requests, whatever
	// its weight; among several, those with weight 0 are omitted.
	Clusters []WeightedCluster
	// Timeout is the timeout of a request. 0 means none except the one that a gRPC client
	// sets.
	Timeout time.Duration
	Retry   *RetryOptions // nil for none
	// PrefixRewrite replaces the matched part of the path. If it is empty, RegexRewrite
	// changes the path.
	PrefixRewrite string
	RegexRewrite  *RegexRewrite
	// HostRewrite replaces the request's host, unless Headers set a "host".
	HostRewrite  string
	HashPolicies []HashPolicy
	Mirrors      []Mirror
	// GRPCWeb translates the gRPC-Web of browsers to gRPC.
	GRPCWeb bool
	// ForwardHost writes the request's host into X-Forwarded-Host where it is replaced.
	ForwardHost bool
}

// RegexRewrite replaces the matches of an RE2 expression.
type RegexRewrite struct{ Match, Substitution string }

// WeightedCluster is one of the clusters that share traffic.
type WeightedCluster struct {
	Name   string
	Weight uint32
	// Headers are applied after those of the route; not for TCP.
	Headers Headers
}

// DirectResponse answers requests without an upstream.
type DirectResponse struct {
	Status uint32
	Body   []byte
}

// Route makes a route for Envoy.
func Route(o RouteOptions) *routev3.Route {
	out := &routev3.Route{
		Name: o.name(), StatPrefix: o.StatPrefix, Match: o.Match.routeMatch(),
		Metadata: message.ConfigMetadata(o.Config), TypedPerFilterConfig: o.perFilter(),
	}
	if o.Operation != "" {
		out.Decorator = &routev3.Decorator{Operation: o.Operation}
	}
	setHeaders(out, o.Headers)
	switch {
	case o.Redirect != nil:
		out.Action = o.Redirect.action()
	case o.DirectResponse != nil:
		out.Action = o.DirectResponse.action()
	case o.forwards():
		clusters, host := o.Forward.clusters(), o.Headers.host()
		if len(clusters) == 1 {
			setHeaders(out, clusters[0].Headers)
			host = cmp.Or(clusters[0].Headers.host(), host)
		}
		out.Action = o.Forward.action(clusters, host)
	default:
		out.Action = (&DirectResponse{Status: 500}).action()
	}
	return out
}

// perFilter returns the route's configuration for Envoy's filters, by filter name; nil
// for none.
func (o RouteOptions) perFilter() map[string]*anypb.Any {
	out := o.Fault.perRoute()
	set := func(name string, config *anypb.Any) {
		if out == nil {
			out = map[string]*anypb.Any{}
		}
		out[name] = config
	}
	if o.CORS != nil {
		set(CORSName, message.Pack(o.CORS.policy()))
	}
	if o.forwards() && o.Forward.GRPCWeb {
		set(GRPCWebName, enabled())
	}
	return out
}

// forwards says whether the route sends requests to clusters.
func (o RouteOptions) forwards() bool {
	return o.Redirect == nil && o.DirectResponse == nil && o.Forward != nil && len(o.Forward.clusters()) > 0
}

// setHeaders adds header changes to a route.
func setHeaders(r *routev3.Route, h Headers) {
	r.RequestHeadersToAdd = append(r.RequestHeadersToAdd, h.Request.options()...)
	r.RequestHeadersToRemove = append(r.RequestHeadersToRemove, h.Request.Remove...)
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, h.Response.options()...)
	r.ResponseHeadersToRemove = append(r.ResponseHeadersToRemove, h.Response.Remove...)
}

// clusters returns the clusters that get requests.
func (f *Forward) clusters() []WeightedCluster { return effective(f.Clusters) }

// effective drops clusters of weight 0, unless there is only one.
func effective(clusters []WeightedCluster) []WeightedCluster {
	if len(clusters) == 1 {
		return clusters
	}
	var out []WeightedCluster
	for _, c := range clusters {
		if c.Weight > 0 {
			out = append(out, c)
		}
	}
	return out
}

// action forwards to clusters, at least one. A host that is not empty replaces the
// request's host.
func (f *Forward) action(clusters []WeightedCluster, host string) *routev3.Route_Route {
	out := &routev3.RouteAction{
		// An explicit 0 means no timeout; omitted, it would be 15 s.
		Timeout:       durationpb.New(f.Timeout),
		RetryPolicy:   f.Retry.policy(),
		PrefixRewrite: f.PrefixRewrite,

		AppendXForwardedHost:  f.ForwardHost,
		RequestMirrorPolicies: mirrorPolicies(f.Mirrors),
	}
	if f.Timeout == 0 {
		// A gRPC client's timeout applies. It must not be set beside a Timeout, which
		// Envoy would then ignore.
		// https://github.com/envoyproxy/envoy/issues/15530
		out.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: durationpb.New(0)}
	}
	specifyClusters(out, clusters, len(f.HashPolicies) > 0)
	if r := f.RegexRewrite; r != nil {
		out.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{Pattern: regex(r.Match), Substitution: r.Substitution}
	}
	if host = cmp.Or(host, f.HostRewrite); host != "" {
		out.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: host}
	}
	for _, h := range f.HashPolicies {
		out.HashPolicy = append(out.HashPolicy, h.route())
	}
	return &routev3.Route_Route{Route: out}
}

// specifyClusters sets the clusters of a route, at least one. If requests are hashed, equal
// hashes go to the same of several clusters: a user who sticks to an endpoint sticks to its
// cluster.
func specifyClusters(a *routev3.RouteAction, clusters []WeightedCluster, hashed bool) {
	if len(clusters) == 1 {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: clusters[0].Name}
		return
	}
	weighted := weightedClusters(clusters)
	if hashed {
		weighted.RandomValueSpecifier = &routev3.WeightedCluster_UseHashPolicy{UseHashPolicy: wrapperspb.Bool(true)}
	}
	a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
}

func weightedClusters(clusters []WeightedCluster) *routev3.WeightedCluster {
	weights := make([]uint32, len(clusters))
	for i, c := range clusters {
		weights[i] = c.Weight
	}
	out := &routev3.WeightedCluster{}
	for i, weight := range message.FitWeights(weights) {
		c := &routev3.WeightedCluster_ClusterWeight{
			Name:                    clusters[i].Name,
			Weight:                  wrapperspb.UInt32(weight),
			RequestHeadersToAdd:     clusters[i].Headers.Request.options(),
			RequestHeadersToRemove:  clusters[i].Headers.Request.Remove,
			ResponseHeadersToAdd:    clusters[i].Headers.Response.options(),
			ResponseHeadersToRemove: clusters[i].Headers.Response.Remove,
		}
		if host := clusters[i].Headers.host(); host != "" {
			c.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: host}
		}
		out.Clusters = append(out.Clusters, c)
	}
	return out
}

func (d *DirectResponse) action() *routev3.Route_DirectResponse {
	out := &routev3.DirectResponseAction{Status: d.Status}
	switch {
	case len(d.Body) == 0:
	case utf8.Valid(d.Body):
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: string(d.Body)}}
	default:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: d.Body}}
	}
	return &routev3.Route_DirectResponse{DirectResponse: out}
}

// Redirect sends the client to another address. Empty parts are taken from the request.
type Redirect struct {
	// Code is 301, 302, 303, 307 or 308; 0 means 301.
	Code         uint32
	Scheme, Host string
	// Path replaces the whole path; if it is empty, PrefixRewrite replaces the matched
	// part.
	Path, PrefixRewrite string
	// Port is omitted if it is the scheme's default port.
	Port uint32
	// TLS says that the listener terminates TLS, so the request's scheme is https.
	TLS bool
}

func (r *Redirect) action() *routev3.Route_Redirect {
	out := &routev3.RedirectAction{ResponseCode: redirectCode(r.Code), HostRedirect: r.Host, PortRedirect: r.port()}
	if r.Scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
	}
	switch {
	case r.Path != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: r.Path}
	case r.PrefixRewrite != "":
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: r.PrefixRewrite}
	}
	return &routev3.Route_Redirect{Redirect: out}
}

func (r *Redirect) port() uint32 {
	scheme := r.Scheme
	if scheme == "" && r.TLS {
		scheme = "https"
	}
	implied := uint32(80)
	if scheme == "https" {
		implied = 443
	}
	if r.Port == implied {
		return 0
	}
	return r.Port
}

func redirectCode(code uint32) routev3.RedirectAction_RedirectResponseCode {
	switch code {
	case 302:
		return routev3.RedirectAction_FOUND
	case 303:
		return routev3.RedirectAction_SEE_OTHER
	case 307:
		return routev3.RedirectAction_TEMPORARY_REDIRECT
	case 308:
		return routev3.RedirectAction_PERMANENT_REDIRECT
	default:
		return routev3.RedirectAction_MOVED_PERMANENTLY
	}
}
