package explain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainPatches: an explanation names the EnvoyFilters that patched what a request takes. Filters
// that are not known are passed over, and it says so.
func TestExplainPatches(t *testing.T) {
	t.Parallel()
	const lua = `{name: shop.lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {inline_string: "function envoy_on_request(r) end"}}}`
	const limit = `{name: shop.limit, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit, stat_prefix: s, max_connections: 9}}`
	m := connected{xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}"),
		xdstest.Object("EnvoyFilter", "shop/lua", `{configPatches: [
		  {applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: INSERT_FIRST, value: `+lua+`}},
		  {applyTo: NETWORK_FILTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: INSERT_FIRST, value: `+limit+`}},
		  {applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {response_headers_to_add: [{header: {key: a, value: b}}]}}}]}`),
		xdstest.Object("EnvoyFilter", "shop/slow", "{configPatches: [{applyTo: CLUSTER, match: {cluster: {service: web.test}}, patch: {operation: MERGE, value: {connect_timeout: 7s}}}]}"),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}")), nil}
	e, err := explained(t, m, "from=shop/vm-1&to=web.test:80")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := line(e), "Forwarded | outbound|80||web.test 10.1.0.1:80"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var patches []string
	for _, p := range e.Patches {
		patches = append(patches, strings.TrimSpace(p.Resource+" "+p.EnvoyFilter+" "+p.Field+" "+p.Error))
	}
	for _, want := range []string{
		"listener " + e.Listener + " shop/lua spec.configPatches[0]", "listener " + e.Listener + " shop/lua spec.configPatches[1]",
		"virtual host 80/web.test:80 shop/lua spec.configPatches[2]", "cluster outbound|80||web.test shop/slow spec.configPatches[0]",
	} {
		if !slices.Contains(patches, want) {
			t.Errorf("patches %q, without %q", patches, want)
		}
	}
	want := []string{
		"the filter shop.limit of envoyfilter/shop/lua is not simulated: it may answer or change the request",
		"the filter shop.lua of envoyfilter/shop/lua is not simulated: it may answer or change the request",
	}
	if !slices.Equal(e.NotSimulated, want) {
		t.Errorf("not simulated: %q, want %q", e.NotSimulated, want)
	}
}
