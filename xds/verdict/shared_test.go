package verdict_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestVerdictsOfSharedSockets: an endpoint whose machine has two sidecars that bind the same ports is
// odd. Sidecars that capture traffic, are not connected or bind other ports share none.
func TestVerdictsOfSharedSockets(t *testing.T) {
	t.Parallel()
	ofApp := func(app, spec string) string {
		return xdstest.Object("Sidecar", app, "{workloadSelector: {labels: {app: "+app+"}}, "+spec+"}")
	}
	proxy := func(app, address string, mode discovery.InterceptionMode) *status.Proxy {
		return &status.Proxy{Node: "sidecar~" + address + "~" + app + "~d", Type: "sidecar", Namespace: "default", Addresses: []string{address}, Labels: map[string]string{"app": app}, Interception: string(mode), Replica: "r"}
	}
	a, b := proxy("a", "10.0.0.1", discovery.InterceptionNone), proxy("b", "10.0.0.1", discovery.InterceptionNone)
	away := *b
	away.Replica = ""
	const none = "egress: [{hosts: [./none.test]}]"
	for name, c := range map[string]struct {
		objects []string
		proxies []*status.Proxy
		shared  string
	}{
		"two that see all":      {proxies: []*status.Proxy{a, b}, shared: "both bind 127.0.0.1 at the ports of services"},
		"one":                   {proxies: []*status.Proxy{a}},
		"one elsewhere":         {proxies: []*status.Proxy{a, proxy("b", "10.0.0.2", discovery.InterceptionNone)}},
		"one that captures":     {proxies: []*status.Proxy{a, proxy("b", "10.0.0.1", discovery.InterceptionRedirect)}},
		"one that is away":      {proxies: []*status.Proxy{a, &away}},
		"one that sees nothing": {objects: []string{ofApp("b", none)}, proxies: []*status.Proxy{a, b}},
		"the same ingress port": {
			objects: []string{ofApp("a", none+", ingress: [{port: {number: 9080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:80'}]"), ofApp("b", none+", ingress: [{port: {number: 9080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:81'}]")},
			proxies: []*status.Proxy{a, b}, shared: "both bind 10.0.0.1:9080"},
		"ingress ports with another bind": {
			objects: []string{ofApp("a", none+", ingress: [{port: {number: 9080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:80'}]"), ofApp("b", none+", ingress: [{bind: 10.0.0.9, port: {number: 9080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:81'}]")},
			proxies: []*status.Proxy{a, b}},
		"the same egress port": {
			objects: []string{ofApp("a", "egress: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*/*']}]"), ofApp("b", "egress: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*/*']}]")},
			proxies: []*status.Proxy{a, b}, shared: "both bind 127.0.0.1:80"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append(c.objects, xdstest.Object("ServiceEntry", "web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}"))...)
			facts := verdict.Facts{Mesh: w.Context(), Proxies: proxies(c.proxies...)}
			var got []string
			for l := range (*index.Index)(nil).Next(facts).Lists() {
				for _, v := range l.Verdicts {
					if v.Code == verdict.SocketShared {
						got = append(got, l.Of.Name+" "+v.Field+" "+v.Message)
					}
				}
			}
			if c.shared == "" {
				if got != nil {
					t.Errorf("%q", got)
				}
				return
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], "web spec.endpoints[0].address 10.0.0.1 has two sidecars, ") || !strings.Contains(got[0], c.shared+":") {
				t.Errorf("%q, want %q", got, c.shared)
			}
		})
	}
}
