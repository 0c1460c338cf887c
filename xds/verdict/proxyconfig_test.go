package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestVerdictsOfProxyConfigs: of one level the oldest counts, and the others name it.
func TestVerdictsOfProxyConfigs(t *testing.T) {
	t.Parallel()
	of := func(name, spec string) string {
		return strings.Replace(xdstest.Object("ProxyConfig", name, spec), "/v1\n", "/v1beta1\n", 1)
	}
	const ofNone = "{selector: {matchLabels: {app: none}}, concurrency: 1}"
	const ofWeb, ofX = "{selector: {matchLabels: {app: web}}, concurrency: 1}", "{selector: {matchLabels: {tier: x}}, concurrency: 2}"
	web := &status.Proxy{Node: "sidecar~1~w~d", Type: "sidecar", Namespace: "default", Addresses: []string{"10.0.0.1"}, Labels: map[string]string{"app": "web", "tier": "x"}, Replica: "r"}
	for name, c := range map[string]struct {
		objects []string
		want    []string
	}{
		"one of each level":                     {[]string{of("istio-system/a", "{concurrency: 1}"), of("b", "{concurrency: 2}"), of("c", ofWeb)}, nil},
		"two of the mesh":                       {[]string{of("istio-system/a", "{concurrency: 1}"), of("istio-system/b", "{concurrency: 2}")}, []string{"b PTL0432 spec beside a"}},
		"two of a workload":                     {[]string{of("a", ofWeb), of("b", ofX)}, []string{"b PTL0432 spec beside a"}},
		"two of nobody yet":                     {[]string{of("a", ofNone), of("b", ofNone)}, []string{"a PTL0371 spec.selector", "b PTL0432 spec beside a", "b PTL0371 spec.selector"}},
		"the root namespace selects of its own": {[]string{of("istio-system/a", ofWeb)}, []string{"a PTL0371 spec.selector"}},
		"a namespace without proxies":           {[]string{of("other/a", "{concurrency: 1}")}, nil},
	} {
		w := xdstest.NewWorld(t, c.objects...)
		got := said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(web)}))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
