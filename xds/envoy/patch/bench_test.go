package patch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/envoy/patch/patchtest"
)

// BenchmarkPatches: what 50 patches cost that match nothing, and one that does.
func BenchmarkPatches(b *testing.B) {
	for _, c := range []struct{ name, base, patch string }{
		{"cluster/none", "cluster", "{applyTo: CLUSTER, match: {cluster: {service: other-%d.example.com}}, patch: {operation: MERGE, value: {connect_timeout: 1s}}}"},
		{"cluster/all", "cluster", "{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 1.%ds}}}"},
		{"listener/none", "inbound", "{applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, listener: {portNumber: 9%d}}, patch: {operation: INSERT_FIRST, value: {name: a, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}}}"},
		{"listener/all", "inbound", "{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: a%d, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}}}"},
		{"routes/none", "routes", "{applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {name: other-%d}}}, patch: {operation: REMOVE}}"},
	} {
		var all []string
		for i := range 50 {
			all = append(all, "- "+fmt.Sprintf(c.patch, i))
		}
		patches := filterOf(b, strings.Join(all, "\n")).Patches
		base := patchtest.BaseOf(b, c.base)
		m, at := base.Message, base.Place
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				patchtest.Apply(m, at, patches)
			}
		})
		b.Run(c.name+"/select", func(b *testing.B) {
			b.ReportAllocs()
			where := placeOf(m, at)
			for b.Loop() {
				patch.Select(where, patches)
			}
		})
	}
}
