package virtualhost

import (
	"iter"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// translator describes the routes for one port of a gateway, or of sidecars. Package
// envoy renders a description for Envoy or for gRPC.
type translator struct {
	view    *mesh.View
	gateway string // "namespace/name", or mesh.MeshGateway
	port    int    // of the listener
	tls     bool   // the listener ends TLS
	grpcWeb bool   // the gateway's server is for gRPC-Web
}

// routes returns the routes of a VirtualService that apply here, in its order, up to the
// first that matches every request. (Istio: BuildHTTPRoutesForVirtualService.)
func (t translator) routes(vs *routing.VirtualService) []envoy.RouteOptions {
	var out []envoy.RouteOptions
	for _, route := range t.places(vs) {
		out = append(out, route)
	}
	return out
}

// Place locates a route in the spec of a VirtualService: http[Block].match[Match]. Match
// is -1 for a block without matches.
type Place struct{ Block, Match int }

// places iterates over the routes of a VirtualService that apply here, with their places.
func (t translator) places(vs *routing.VirtualService) iter.Seq2[Place, envoy.RouteOptions] {
	return func(yield func(Place, envoy.RouteOptions) bool) {
		for block, http := range vs.Spec.GetHttp() {
			matches, first := http.GetMatch(), 0
			if len(matches) == 0 {
				matches, first = []*networking.HTTPMatchRequest{nil}, -1
			}
			for i, match := range matches {
				if !t.applies(match) {
					continue
				}
				route, ok := t.route(vs, http, match)
				if !ok {
					continue
				}
				if !yield(Place{block, first + i}, route) || route.Match.CatchAll() {
					return
				}
			}
		}
	}
}

// Places iterates over the routes of a VirtualService for a port. gateway is
// "namespace/name", and tls says whether the server terminates TLS; for sidecars and gRPC
// clients gateway is mesh.MeshGateway.
func Places(v *mesh.View, gateway string, port int, tls bool, vs *routing.VirtualService) iter.Seq2[Place, envoy.RouteOptions] {
	return translator{view: v, gateway: gateway, port: port, tls: tls}.places(vs)
}

// applies says whether a match is for this port, gateway and proxy. In a match that names
// gateways, the source labels and namespace do not count.
func (t translator) applies(m *networking.HTTPMatchRequest) bool {
	if m.GetPort() != 0 && int(m.GetPort()) != t.port {
		return false
	}
	if len(m.GetGateways()) > 0 {
		return slices.Contains(m.GetGateways(), t.gateway)
	}
	if len(m.GetSourceLabels()) > 0 && !t.view.HasLabels(labels.Instance(m.GetSourceLabels())) {
		return false
	}
	return m.GetSourceNamespace() == "" || t.view.InNamespace(m.GetSourceNamespace())
}

// route describes one route; false if its action is not supported.
func (t translator) route(vs *routing.VirtualService, http *networking.HTTPRoute, match *networking.HTTPMatchRequest) (envoy.RouteOptions, bool) {
	out := envoy.RouteOptions{
		Name:       names.Route(http.GetName(), match.GetName()),
		StatPrefix: match.GetStatPrefix(),
		Match:      matchOptions(match),
		Headers:    headers(http.GetHeaders()),
		Fault:      fault(http.GetFault()),
		CORS:       cors(http.GetCorsPolicy()),
		Config:     configPath(&vs.Config.Meta),
	}
	out.Match.WholeSegments = vs.Derived != nil
	switch {
	case http.GetRedirect() != nil:
		out.Redirect = t.redirect(http.GetRedirect())
	case http.GetDirectResponse() != nil:
		out.DirectResponse = directResponse(http.GetDirectResponse())
	case len(http.GetRoute()) > 0:
		out.Forward = t.forward(http)
	default:
		return out, false
	}
	out.Operation = out.OperationName(vs.Config.Name, uint32(t.port))
	return out, true
}

// matchOptions describes the conditions of a match, none for a nil match.
func matchOptions(m *networking.HTTPMatchRequest) envoy.MatchOptions {
	o := envoy.MatchOptions{
		Path:            stringMatch(m.GetUri()),
		IgnorePathCase:  m.GetIgnoreUriCase(),
		Method:          optionalMatch(m.GetMethod()),
		Authority:       optionalMatch(m.GetAuthority()),
		HTTPScheme:      optionalMatch(m.GetScheme()),
		QueryParameters: namedMatches(m.GetQueryParams(), false),
	}
	for _, h := range append(namedMatches(m.GetHeaders(), false), namedMatches(m.GetWithoutHeaders(), true)...) {
		if path, ok := schema.ClaimOf(h.Name); ok {
			o.Claims = append(o.Claims, envoy.ClaimMatch{Path: path, StringMatch: h.StringMatch, Invert: h.Invert})
		} else {
			o.Headers = append(o.Headers, h)
		}
	}
	return o
}

func stringMatch(m *networking.StringMatch) envoy.StringMatch {
	switch t := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return envoy.StringMatch{Kind: envoy.Exact, Value: t.Exact}
	case *networking.StringMatch_Prefix:
		return envoy.StringMatch{Kind: envoy.Prefix, Value: t.Prefix}
	case *networking.StringMatch_Regex:
		return envoy.StringMatch{Kind: envoy.Regex, Value: t.Regex}
	}
	return envoy.StringMatch{}
}

func optionalMatch(m *networking.StringMatch) *envoy.StringMatch {
	if m == nil {
		return nil
	}
	out := stringMatch(m)
	return &out
}

func namedMatches(matches map[string]*networking.StringMatch, invert bool) []envoy.NamedMatch {
	var out []envoy.NamedMatch
	for _, name := range slices.Sorted(maps.Keys(matches)) {
		out = append(out, envoy.NamedMatch{Name: name, StringMatch: stringMatch(matches[name]), Invert: invert})
	}
	return out
}
