package virtualhost

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy"
)

// cors describes the CORS policy of a route, nil for none.
func cors(p *networking.CorsPolicy) *envoy.CORS {
	if p == nil {
		return nil
	}
	out := &envoy.CORS{
		Methods: p.GetAllowMethods(), Headers: p.GetAllowHeaders(), ExposeHeaders: p.GetExposeHeaders(),
		AnswerUnmatched: p.GetUnmatchedPreflights() == networking.CorsPolicy_IGNORE,
	}
	for _, o := range p.GetAllowOrigins() {
		out.Origins = append(out.Origins, stringMatch(o))
	}
	if len(out.Origins) == 0 {
		//lint:ignore SA1019 Istio takes the deprecated field still.
		for _, o := range p.GetAllowOrigin() {
			out.Origins = append(out.Origins, envoy.StringMatch{Kind: envoy.Exact, Value: o})
		}
	}
	if p.GetMaxAge() != nil {
		age := p.GetMaxAge().AsDuration()
		out.MaxAge = &age
	}
	if p.GetAllowCredentials() != nil {
		out.Credentials = &p.GetAllowCredentials().Value
	}
	return out
}
