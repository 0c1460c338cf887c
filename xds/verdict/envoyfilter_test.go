package verdict_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestVerdictsOfEnvoyFilters: a stored value that Envoy does not take, one that is odd, and a patch
// that opens what policies close have a verdict as long as they are there.
func TestVerdictsOfEnvoyFilters(t *testing.T) {
	t.Parallel()
	const (
		buffer = `{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: a, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer`
		opens  = `{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.rbac}}}}}, patch: {operation: REMOVE}}`
	)
	for name, c := range map[string]struct {
		patches string
		want    []string
	}{
		"sound":  {buffer + `, max_request_bytes: 1}}}}`, nil},
		"faulty": {buffer + `}}}}`, []string{"a PTL0471 spec.configPatches[0].patch.value"}},
		"odd":    {buffer + `, max_request_bytes: 1, none: 1}}}}`, []string{"a PTL0472 spec.configPatches[0].patch.value.typed_config.none"}},
		"opens":  {opens, []string{"a PTL0473 spec.configPatches[0].match"}},
		"all three": {opens + ", " + buffer + `}}}}, ` + buffer + `, max_request_bytes: 1, none: 1}}}}`, []string{
			"a PTL0471 spec.configPatches[1].patch.value", "a PTL0473 spec.configPatches[0].match", "a PTL0472 spec.configPatches[2].patch.value.typed_config.none",
		}},
	} {
		object := xdstest.Object("EnvoyFilter", "a", "{configPatches: ["+c.patches+"]}")
		got := said((*index.Index)(nil).Next(verdict.Facts{Mesh: xdstest.NewWorld(t, object).Context()}))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
