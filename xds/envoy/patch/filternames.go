package patch

import "github.com/portolan-mesh/portolan/xds/names"

// filterKind is a kind of filters, each with names of its own.
type filterKind int

const (
	httpFilter filterKind = iota
	networkFilter
	listenerFilter
)

// deprecatedNames are names that Envoy had for filters, by which EnvoyFilters still match them.
// (Istio: pkg/config/xds DeprecatedFilterNames.)
var deprecatedNames = [...]map[string]string{
	httpFilter: {
		"envoy.buffer":               "envoy.filters.http.buffer",
		"envoy.cors":                 "envoy.filters.http.cors",
		"envoy.csrf":                 "envoy.filters.http.csrf",
		"envoy.ext_authz":            "envoy.filters.http.ext_authz",
		"envoy.fault":                "envoy.filters.http.fault",
		"envoy.grpc_http1_bridge":    "envoy.filters.http.grpc_http1_bridge",
		"envoy.grpc_json_transcoder": "envoy.filters.http.grpc_json_transcoder",
		"envoy.grpc_web":             "envoy.filters.http.grpc_web",
		"envoy.gzip":                 "envoy.filters.http.gzip",
		"envoy.health_check":         "envoy.filters.http.health_check",
		"envoy.http_dynamo_filter":   "envoy.filters.http.dynamo",
		"envoy.ip_tagging":           "envoy.filters.http.ip_tagging",
		"envoy.lua":                  "envoy.filters.http.lua",
		"envoy.rate_limit":           "envoy.filters.http.ratelimit",
		"envoy.router":               "envoy.filters.http.router",
		"envoy.squash":               "envoy.filters.http.squash",
	},
	networkFilter: {
		"envoy.client_ssl_auth":         "envoy.filters.network.client_ssl_auth",
		"envoy.ext_authz":               "envoy.filters.network.ext_authz",
		"envoy.http_connection_manager": connectionManager,
		"envoy.mongo_proxy":             "envoy.filters.network.mongo_proxy",
		"envoy.ratelimit":               "envoy.filters.network.ratelimit",
		"envoy.redis_proxy":             "envoy.filters.network.redis_proxy",
		"envoy.tcp_proxy":               tcpProxy,
	},
	listenerFilter: {
		"envoy.listener.http_inspector": "envoy.filters.listener.http_inspector",
		"envoy.listener.original_dst":   "envoy.filters.listener.original_dst",
		"envoy.listener.original_src":   "envoy.filters.listener.original_src",
		"envoy.listener.proxy_protocol": "envoy.filters.listener.proxy_protocol",
		"envoy.listener.tls_inspector":  "envoy.filters.listener.tls_inspector",
	},
}

const (
	connectionManager = "envoy.filters.network.http_connection_manager"
	tcpProxy          = "envoy.filters.network.tcp_proxy"
)

// canonical returns the name that Envoy has for a filter now.
func (k filterKind) canonical(name string) string {
	if now, ok := deprecatedNames[k][name]; ok {
		return now
	}
	return name
}

// matches says whether a filter has a name that a match asks for: its own, one that Envoy had for
// it, or, for a filter of policies, the one that Istio has for it.
func (k filterKind) matches(asked, name string) bool {
	asked = k.canonical(asked)
	return asked != "" && (asked == k.canonical(name) || asked == names.PolicyFilter(name))
}
