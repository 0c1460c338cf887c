package simulate

import (
	"net/http"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
)

const corsFilter = "envoy.filters.http.cors"

// answersPreflight says whether the proxy itself answers a request, since it is a
// preflight request and the route has a CORS policy for it.
func answersPreflight(route *routev3.Route, r Request) (bool, error) {
	config := route.GetTypedPerFilterConfig()[corsFilter]
	if config == nil || route.GetRoute() == nil { // the filter ignores routes that do not forward
		return false, nil
	}
	policy := &corsv3.CorsPolicy{}
	if err := config.UnmarshalTo(policy); err != nil {
		return false, err
	}
	if !isPreflight(r) {
		return false, nil
	}
	origin, _ := requestHeader(r, "origin")
	for _, m := range policy.GetAllowOriginStringMatch() {
		for _, value := range []string{"*", origin} {
			if ok, err := stringMatches(m, value); ok || err != nil {
				return ok, err
			}
		}
	}
	forwards := policy.GetForwardNotMatchingPreflights()
	return forwards != nil && !forwards.GetValue(), nil
}

// isPreflight says whether a browser asks whether it may send another request.
func isPreflight(r Request) bool {
	origin, _ := requestHeader(r, "origin")
	method, _ := requestHeader(r, "access-control-request-method")
	return r.Method == http.MethodOptions && origin != "" && method != ""
}
