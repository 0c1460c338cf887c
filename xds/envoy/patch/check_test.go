package patch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
)

func texts(findings []patch.Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, f.Field+" "+f.Message)
	}
	return out
}

// TestCheck: what cannot be read or taken is a fault, and what is odd a warning.
func TestCheck(t *testing.T) {
	t.Parallel()
	const filter = `- {applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: a, typed_config: {"@type": type.googleapis.com/`
	for name, c := range map[string]struct {
		patches          string
		faults, warnings []string
	}{
		"sound":   {patches: filter + `envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}}}`},
		"removed": {patches: "- {applyTo: CLUSTER, patch: {operation: REMOVE}}"},
		"an unknown field": {patches: filter + `envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9, no_such_field: a}}}}`,
			warnings: []string{"configPatches[0].patch.value.typed_config.no_such_field is no field of envoy.extensions.filters.http.buffer.v3.Buffer in Envoy 1.40: it is left out"}},
		"several unknown fields": {patches: `
- {applyTo: CLUSTER, patch: {operation: MERGE, value: {conect_timeout: 1s, connectTimeout: 1s, metadata: {filter_metadata: {x: {any: 1}}, filter_meta: {}},
    load_assignment: {cluster_name: a, endpoints: [{lb_endpoints: []}, {localty: {}}]},
    typed_extension_protocol_options: {a: {"@type": type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, value: {max_bytes: 1, max_request_bytes: 1}}}}}}`,
			warnings: []string{
				"configPatches[0].patch.value.conect_timeout is no field of envoy.config.cluster.v3.Cluster in Envoy 1.40: it is left out",
				"configPatches[0].patch.value.load_assignment.endpoints[1].localty is no field of envoy.config.endpoint.v3.LocalityLbEndpoints in Envoy 1.40: it is left out",
				"configPatches[0].patch.value.metadata.filter_meta is no field of envoy.config.core.v3.Metadata in Envoy 1.40: it is left out",
				"configPatches[0].patch.value.typed_extension_protocol_options.a.value.max_bytes is no field of envoy.extensions.filters.http.buffer.v3.Buffer in Envoy 1.40: it is left out",
			}},
		"an unknown type": {patches: filter + `stats.PluginConfig, a: b}}}}`,
			warnings: []string{"configPatches[0].patch.value.typed_config.@type is type.googleapis.com/stats.PluginConfig, which a stock Envoy 1.40 does not know: it is passed on unread"}},
		"an unknown type of Envoy": {patches: filter + `envoy.extensions.filters.http.bufer.v3.Buffer}}}}`,
			faults: []string{"configPatches[0].patch.value.typed_config.@type is type.googleapis.com/envoy.extensions.filters.http.bufer.v3.Buffer, which Envoy 1.40 does not know: mend the name"}},
		"a wrong setting": {patches: filter + `envoy.extensions.filters.http.buffer.v3.Buffer}}}}`,
			faults: []string{"configPatches[0].patch.value breaks a rule of Envoy's API: invalid Buffer.MaxRequestBytes: value is required and must not be nil."}},
		"a part may lack what it is merged into": {patches: `- {applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.tcp_proxy}}}}, patch: {operation: MERGE, value: {typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, idle_timeout: 1s}}}}`},
		"what is appended is whole": {patches: `- {applyTo: LISTENER, patch: {operation: MERGE, value: {listener_filters: [{name: a}]}}}`,
			faults: []string{`configPatches[0].patch.value has the filter "a" without typed_config: Envoy finds a filter by the @type of that`}},
		"deprecated": {patches: `
- {applyTo: CLUSTER, patch: {operation: MERGE, value: {http2_protocol_options: {}, max_requests_per_connection: 1}}}
- {applyTo: HTTP_FILTER, match: {listener: {listenerFilter: envoy.listener.tls_inspector, filterChain: {filter: {name: envoy.http_connection_manager, subFilter: {name: envoy.router}}}}}, patch: {operation: REMOVE}}`,
			warnings: []string{
				"configPatches[0].patch.value uses envoy.config.cluster.v3.Cluster.max_requests_per_connection, which Envoy will lose",
				"configPatches[0].patch.value uses envoy.config.cluster.v3.Cluster.http2_protocol_options, which Envoy will lose",
				"configPatches[1].match.listener.listenerFilter is envoy.listener.tls_inspector, which is now envoy.filters.listener.tls_inspector",
				"configPatches[1].match.listener.filterChain.filter.name is envoy.http_connection_manager, which is now envoy.filters.network.http_connection_manager",
				"configPatches[1].match.listener.filterChain.filter.subFilter.name is envoy.router, which is now envoy.filters.http.router",
			}},
	} {
		faults, warnings := patch.Check(specOf(t, c.patches))
		if d := cmp.Diff(c.faults, texts(faults)); d != "" {
			t.Errorf("%s: faults (-want +got):\n%s", name, d)
		}
		if d := cmp.Diff(c.warnings, texts(warnings)); d != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", name, d)
		}
	}
}

// TestWeakens: a patch that takes security away or changes it is found, one that only adds is not.
func TestWeakens(t *testing.T) {
	t.Parallel()
	const asked = "match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: "
	for name, c := range map[string]struct{ patch, want string }{
		"added":            {`{applyTo: HTTP_FILTER, ` + asked + `envoy.filters.http.rbac}}}}}, patch: {operation: INSERT_BEFORE, value: {name: envoy.filters.http.ext_authz, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz}}}}`, ""},
		"another filter":   {`{applyTo: HTTP_FILTER, ` + asked + `envoy.filters.http.cors}}}}}, patch: {operation: REMOVE}}`, ""},
		"removed":          {`{applyTo: HTTP_FILTER, ` + asked + `envoy.filters.http.rbac}}}}}, patch: {operation: REMOVE}}`, "configPatches[0].match removes the filter envoy.filters.http.rbac, which decides who may do what"},
		"a filter of ours": {`{applyTo: HTTP_FILTER, ` + asked + `portolan.tokens.http}}}}}, patch: {operation: REPLACE, value: {name: a}}}`, "configPatches[0].match replaces the filter portolan.tokens.http, which decides who may do what"},
		"a deprecated name": {`{applyTo: HTTP_FILTER, ` + asked + `envoy.ext_authz}}}}}, patch: {operation: MERGE, value: {typed_config: {a: b}}}}`,
			"configPatches[0].match changes the filter envoy.ext_authz, which decides who may do what"},
		"connections": {`{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.rbac}}}}, patch: {operation: REMOVE}}`,
			"configPatches[0].match removes the filter envoy.filters.network.rbac, which decides who may connect"},
		"connections, by type": {`{applyTo: NETWORK_FILTER, patch: {operation: MERGE, value: {name: a, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC, stat_prefix: a}}}}`,
			"configPatches[0].match changes the filters of type envoy.extensions.filters.network.rbac.v3.RBAC, which decide who may connect"},
		"the manager": {`{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: envoy.http_connection_manager}}}}, patch: {operation: REPLACE, value: {name: a}}}`,
			"configPatches[0].match replaces the connection manager with its filters, which decide who may do what"},
		"settings of the manager": {`{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: envoy.http_connection_manager}}}}, patch: {operation: MERGE, value: {typed_config: {http_filters: [{name: envoy.filters.http.rbac}]}}}}`, ""},
		"filters of the manager": {`{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: envoy.http_connection_manager}}}}, patch: {operation: MERGE_AND_REPLACE_LIST, value: {typed_config: {http_filters: [{name: a}]}}}}`,
			"configPatches[0].patch.value.typed_config.http_filters replaces the whole list, with what in it decides who may do what"},
		"a socket": {`{applyTo: FILTER_CHAIN, patch: {operation: MERGE, value: {transport_socket: {typed_config: {require_client_certificate: false}}}}}`,
			"configPatches[0].patch.value.transport_socket changes how connections are encrypted and authenticated"},
		"sockets of a cluster": {`{applyTo: CLUSTER, patch: {operation: MERGE_AND_REPLACE_LIST, value: {transportSocketMatches: [{}]}}}`,
			"configPatches[0].patch.value.transportSocketMatches changes how connections are encrypted and authenticated"},
		"an added cluster with a socket": {`{applyTo: CLUSTER, patch: {operation: ADD, value: {name: a, transport_socket: {name: a}}}}`, ""},
		"statistics of a bootstrap":      {`{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {stats_flush_interval: 9s, static_resources: {clusters: [{name: a}]}}}}`, ""},
		"a bootstrap": {`{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {dynamicResources: {}, static_resources: {clusters: [{name: a}, {name: sds-grpc}]}}}}`,
			"configPatches[0].patch.value.dynamicResources changes the bootstrap in who the proxy is, whom it obeys, who may command it or which code it loads" +
				"configPatches[0].patch.value.static_resources.clusters[1] changes sds-grpc, through which the proxy gets its configuration or its certificates"},
		"a socket of a bootstrap": {`{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {static_resources: {clusters: [{name: a, transport_socket: {name: b}}]}}}}`,
			"configPatches[0].patch.value.static_resources.clusters[0].transport_socket changes how connections are encrypted and authenticated"},
		"a route": {`{applyTo: HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {typed_per_filter_config: {envoy.filters.http.rbac: {a: b}, envoy.filters.http.cors: {}}}}}`,
			`configPatches[0].patch.value.typed_per_filter_config["envoy.filters.http.rbac"] has other settings of a filter that decides who may do what, for some requests`},
		"a route by type": {`{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {routes: [{typedPerFilterConfig: {own: {"@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute}}}]}}}`,
			`configPatches[0].patch.value.routes[0].typedPerFilterConfig["own"] has other settings of a filter that decides who may do what, for some requests`},
	} {
		got := ""
		for _, text := range texts(patch.Weakens(specOf(t, "- "+c.patch))) {
			got += text
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
