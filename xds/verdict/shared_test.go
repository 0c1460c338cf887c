package verdict_test

import (
	"slices"
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

// TestVerdictsOfEndpointsTwice: two WorkloadEntries that give a service one address and port are both
// odd, also where they say that they are in different networks. At other ports, of services of their
// own, or alone, they are not.
func TestVerdictsOfEndpointsTwice(t *testing.T) {
	t.Parallel()
	workload := func(name, spec string) string {
		return xdstest.Object("WorkloadEntry", name, "{serviceAccount: a, address: 10.0.0.1, "+spec+"}")
	}
	service := func(name string) string {
		return xdstest.Object("ServiceEntry", name, "{hosts: ["+name+".test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: "+name+"}}}")
	}
	for name, c := range map[string]struct {
		objects []string
		want    []string
	}{
		"one address": {
			[]string{service("web"), workload("a", "labels: {app: web}"), workload("b", "labels: {app: web}")},
			[]string{"a beside b: 10.0.0.1:80 is an endpoint of web.test by workloadentry/default/b too: ", "b beside a: 10.0.0.1:80 is an endpoint of web.test by workloadentry/default/a too: "},
		},
		"one address of two networks": {
			[]string{service("web"), workload("a", "network: x, labels: {app: web}"), workload("b", "labels: {app: web}")},
			[]string{`a beside b: 10.0.0.1:80 is an endpoint of web.test by workloadentry/default/b too, in network "", and this one in "x": `, `b beside a: 10.0.0.1:80 is an endpoint of web.test by workloadentry/default/a too, in network "x", and this one in "": `},
		},
		"other ports":    {[]string{service("web"), workload("a", "labels: {app: web}"), workload("b", "ports: {http: 81}, labels: {app: web}")}, nil},
		"other services": {[]string{service("web"), service("api"), workload("a", "labels: {app: web}"), workload("b", "labels: {app: api}")}, nil},
		"alone":          {[]string{service("web"), workload("a", "labels: {app: web}")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, c.objects...)
			var got []string
			for l := range (*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context()}).Lists() {
				for _, v := range l.Verdicts {
					if v.Code == verdict.EndpointTwice {
						text, _, _ := strings.Cut(v.Message, "clients have it once")
						got = append(got, l.Of.Name+" beside "+v.Other.Name+": "+text)
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
