package virtualhost

import (
	"maps"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// translator makes routes for one port of a gateway, or of sidecars.
type translator struct {
	view    *mesh.View
	gateway string // "namespace/name", or mesh.MeshGateway
	port    int    // of the listener
}

// routes are those of a VirtualService that apply here, in its order, as far as
// the first that takes every request; none where nothing applies. (Istio:
// BuildHTTPRoutesForVirtualService.)
func (t translator) routes(vs *mesh.VirtualService) []*routev3.Route {
	var out []*routev3.Route
	for _, http := range vs.Spec.GetHttp() {
		matches := http.GetMatch()
		if len(matches) == 0 {
			matches = []*networking.HTTPMatchRequest{nil}
		}
		for _, match := range matches {
			if !t.applies(match) {
				continue
			}
			route := t.route(vs, http, match)
			if route == nil {
				continue
			}
			out = append(out, route)
			if envoy.CatchAll(route.GetMatch()) {
				return out
			}
		}
	}
	return out
}

// applies says whether a match is for this port, gateway and proxy. Where it
// names gateways, it says nothing of where requests come from.
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

// route makes one route, nil where the action is none that is served.
func (t translator) route(vs *mesh.VirtualService, http *networking.HTTPRoute, match *networking.HTTPMatchRequest) *routev3.Route {
	options := envoy.RouteOptions{
		Name:    envoy.RouteName(http.GetName(), match.GetName()),
		Match:   envoy.Match(matchOptions(match)),
		Headers: headers(http.GetHeaders()),
		Config:  configPath(&vs.Config.Meta),
	}
	switch {
	case http.GetRedirect() != nil:
		options.Redirect = t.redirect(http.GetRedirect())
	case http.GetDirectResponse() != nil:
		options.DirectResponse = directResponse(http.GetDirectResponse())
	case len(http.GetRoute()) > 0:
		options.Forward = t.forward(http)
	default:
		return nil
	}
	return t.decorated(envoy.Route(options), vs.Config.Name)
}

// decorated names the operation of a route in traces.
func (t translator) decorated(r *routev3.Route, virtualService string) *routev3.Route {
	r.Decorator = &routev3.Decorator{Operation: envoy.RouteOperation(r, virtualService, uint32(t.port))}
	return r
}

// matchOptions are what a match asks of a request, nothing where it is nil.
func matchOptions(m *networking.HTTPMatchRequest) envoy.MatchOptions {
	o := envoy.MatchOptions{
		Path:            stringMatch(m.GetUri()),
		IgnorePathCase:  m.GetIgnoreUriCase(),
		Method:          optionalMatch(m.GetMethod()),
		Authority:       optionalMatch(m.GetAuthority()),
		HTTPScheme:      optionalMatch(m.GetScheme()),
		QueryParameters: namedMatches(m.GetQueryParams(), false),
	}
	o.Headers = append(namedMatches(m.GetHeaders(), false), namedMatches(m.GetWithoutHeaders(), true)...)
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
