package integration

import (
	"maps"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// envoyFilter is an EnvoyFilter of the namespace of the shop, given by its patches.
func envoyFilter(patches string) string {
	return "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: patch, namespace: shop}\nspec:\n  configPatches:\n" + patches
}

// beforeRouter matches the router of the connection managers, in a context.
func beforeRouter(context, filter string) string {
	return fill(`
  - applyTo: HTTP_FILTER
    match: {context: $context, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch: {operation: INSERT_BEFORE, value: $filter}
`, "$context", context, "$filter", filter)
}

const (
	luaHeader = `{name: envoy.filters.http.lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: "function envoy_on_response(r) r:headers():add('x-patched', 'lua') end"}}}`
	noTokens  = `{name: envoy.filters.http.local_ratelimit, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: patched,
      token_bucket: {max_tokens: 1, tokens_per_fill: 1, fill_interval: 3600s}, filter_enabled: {default_value: {numerator: 100}}, filter_enforced: {default_value: {numerator: 100}}}}`
	byItself = `{name: shop.lua, config_discovery: {config_source: {ads: {}, resource_api_version: V3}, type_urls: [type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua]}}`
)

// TestEnvoyFilters applies EnvoyFilters to a gateway and a sidecar, one after the other. Each does
// what it says to the proxies of its context, and once it is gone, both have what they had before.
func TestEnvoyFilters(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)
		proxies := map[string]*envoy{"gateway": edge, "sidecar": client}
		requests := map[string]request{"gateway": x.atGateway("/"), "sidecar": x.atSidecar("/")}
		before := map[string]map[string]string{}
		versions := func(e *envoy) map[string]string {
			out := map[string]string{}
			for name, held := range e.mustHold() {
				// A route configuration shows the version of the last response with its virtual hosts.
				if v == protocol.StateOfTheWorld || !strings.HasPrefix(name, "route_configs ") {
					out[name] = held.Version
				}
			}
			return out
		}
		for name, e := range proxies {
			before[name] = versions(e)
		}
		header := func(r reply) string { return strings.Join(r.header.Values("X-Patched"), ",") }
		status := func(r reply) string { return r.String() }
		for _, tc := range []struct {
			name, patches string
			got           func(reply) string // of the second response
			want          map[string]string  // by proxy; without an entry as before
			configured    string             // a text in the sidecar's configuration
		}{
			{name: "a Lua filter for sidecars", patches: beforeRouter("SIDECAR_OUTBOUND", luaHeader), got: header, want: map[string]string{"sidecar": "lua"}},
			{name: "a Lua filter for gateways", patches: beforeRouter("GATEWAY", luaHeader), got: header, want: map[string]string{"gateway": "lua"}},
			{name: "a limit for all", patches: beforeRouter("ANY", noTokens), got: status, want: map[string]string{"gateway": "429", "sidecar": "429"}},
			{name: "a filter that comes by itself", got: header, want: map[string]string{"sidecar": "lua"},
				patches: beforeRouter("SIDECAR_OUTBOUND", byItself) + "  - applyTo: EXTENSION_CONFIG\n    patch: {operation: ADD, value: " + strings.Replace(luaHeader, "envoy.filters.http.lua", "shop.lua", 1) + "}\n"},
			{name: "a header of a virtual host", got: header, want: map[string]string{"gateway": "host", "sidecar": "host"}, patches: fill(`
  - applyTo: VIRTUAL_HOST
    match: {routeConfiguration: {vhost: {name: "$host:$port"}}}
    patch: {operation: MERGE, value: {response_headers_to_add: [{header: {key: x-patched, value: host}}]}}
  - applyTo: VIRTUAL_HOST
    match: {context: GATEWAY}
    patch: {operation: MERGE, value: {response_headers_to_add: [{header: {key: x-patched, value: host}}]}}
`, "$host", shopHost, "$port", x.service)},
			{name: "a header of routes", got: header, want: map[string]string{"sidecar": "route"}, patches: `
  - applyTo: HTTP_ROUTE
    match: {context: SIDECAR_OUTBOUND}
    patch: {operation: MERGE, value: {response_headers_to_add: [{header: {key: x-patched, value: route}}]}}
`},
			{name: "a header of a route configuration", got: header, want: map[string]string{"gateway": "routes"}, patches: `
  - applyTo: ROUTE_CONFIGURATION
    match: {context: GATEWAY}
    patch: {operation: MERGE, value: {response_headers_to_add: [{header: {key: x-patched, value: routes}}]}}
`},
			{name: "a cluster is changed", got: status, want: map[string]string{"gateway": "v1", "sidecar": "v1"}, configured: `"connect_timeout": "7s"`, patches: fill(`
  - applyTo: CLUSTER
    match: {cluster: {service: $host}}
    patch: {operation: MERGE, value: {connect_timeout: 7s}}
`, "$host", shopHost)},
			{name: "a cluster and routes to it are added", got: status, want: map[string]string{"sidecar": "v2"}, patches: fill(`
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND}
    patch: {operation: ADD, value: {name: more, type: STATIC, connect_timeout: 1s, load_assignment: {cluster_name: more, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $port}}}}]}]}}}
  - applyTo: HTTP_ROUTE
    match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: "$host:$service"}}}
    patch: {operation: INSERT_FIRST, value: {name: more, match: {prefix: /}, route: {cluster: more}}}
`, "$port", x.v2.port, "$host", shopHost, "$service", x.service)},
			{name: "a listener filter and a limit of connections", got: status, want: map[string]string{"gateway": "v1", "sidecar": "v1"}, configured: "envoy.filters.listener.http_inspector", patches: fill(`
  - applyTo: LISTENER_FILTER
    match: {context: SIDECAR_OUTBOUND, listener: {portNumber: $port}}
    patch: {operation: INSERT_FIRST, value: {name: envoy.filters.listener.http_inspector, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector}}}
  - applyTo: NETWORK_FILTER
    match: {context: SIDECAR_OUTBOUND, listener: {portNumber: $port, filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch: {operation: INSERT_BEFORE, value: {name: envoy.filters.network.connection_limit, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit, stat_prefix: patched, max_connections: 100}}}
`, "$port", x.service)},
		} {
			s.awaitSynced(s.apply(envoyFilter(tc.patches)), "edge", "client")
			for name, q := range requests {
				send(t, q)
				want, patched := tc.want[name]
				if got := tc.got(send(t, q)); patched && got != want || !patched && got != "" && got != "v1" {
					t.Errorf("%s: a request through the %s: %q, want %q", tc.name, name, got, want)
				}
			}
			if tc.configured != "" {
				client.awaitConfig(tc.configured)
			}
			s.awaitSynced(s.remove(envoyFilter(tc.patches)), "edge", "client")
			for name, e := range proxies {
				if after := versions(e); !maps.Equal(after, before[name]) {
					t.Errorf("%s: without it the %s has %v, and had %v", tc.name, name, after, before[name])
				}
			}
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}
