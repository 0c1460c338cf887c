package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh/policy"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

const removesFilter = `{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.rbac}}}}}, patch: {operation: REMOVE}}]}`

// TestVerdictsOfAuthorization: what is odd about AuthorizationPolicies.
func TestVerdictsOfAuthorization(t *testing.T) {
	t.Parallel()
	web := func(protocol string) string {
		return xdstest.Object("ServiceEntry", "web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: p, protocol: "+protocol+"}], endpoints: [{address: 10.0.0.1, serviceAccount: web, labels: {app: web}}]}")
	}
	named := func(name, spec string) string { return xdstest.Object("AuthorizationPolicy", name, spec) }
	of := func(spec string) string { return named("p", spec) }
	sidecar := certified("sidecar~10.0.0.1~web.default~default.svc.cluster.local", "10.0.0.1")
	gateway := &status.Proxy{Node: "router~10.0.0.9~edge.default~d", Type: "router", Namespace: "default", Addresses: []string{"10.0.0.9"}, Labels: map[string]string{"app": "edge", policy.GatewayLabel: "edge"}, Replica: "r"}
	server := &status.Proxy{Node: "proxyless~10.0.0.1~web.default~d", Type: "grpc", Namespace: "default", Addresses: []string{"10.0.0.1"}, Replica: "r", Certified: true}
	const servers = "servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]"
	door := xdstest.Object("Gateway", "door", "{selector: {app: edge}, "+servers+"}")
	ask := xdstest.Object("ServiceEntry", "istio-system/ask", "{hosts: [ask.test], exportTo: [.], resolution: STATIC, ports: [{number: 80, name: grpc, protocol: GRPC}], endpoints: [{address: 10.0.0.7}]}")
	strict := xdstest.Object("PeerAuthentication", "strict", "{mtls: {mode: STRICT}}")
	const principals = "{rules: [{from: [{source: {principals: [cluster.local/ns/default/sa/a]}}]}]}"
	for name, c := range map[string]struct {
		mesh    string
		objects []string
		proxies []*status.Proxy
		want    []string
	}{
		"nothing odd":                        {objects: []string{web("HTTP"), strict, of(principals)}},
		"a selector that has somebody":       {objects: []string{web("HTTP"), of("{selector: {matchLabels: {app: web}}, rules: [{}]}")}},
		"a selector that has nobody":         {objects: []string{web("HTTP"), of("{selector: {matchLabels: {app: db}}, rules: [{}]}")}, want: []string{"p PTL0371 spec.selector"}},
		"nobody is there yet":                {objects: []string{of("{rules: [{}]}")}, proxies: []*status.Proxy{}},
		"a gateway":                          {objects: []string{of("{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}], rules: [{}]}")}, proxies: []*status.Proxy{gateway}},
		"a gateway that nobody is":           {objects: []string{of("{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: door}], rules: [{}]}")}, proxies: []*status.Proxy{gateway}, want: []string{"p PTL0371 spec.targetRefs"}},
		"a Gateway":                          {objects: []string{door, of("{targetRefs: [{group: networking.istio.io, kind: Gateway, name: door}], rules: [{}]}")}, proxies: []*status.Proxy{gateway}},
		"a Gateway that is not there":        {objects: []string{of("{targetRefs: [{kind: Service, name: web}, {group: networking.istio.io, kind: Gateway, name: door}], rules: [{}]}")}, proxies: []*status.Proxy{gateway}, want: []string{"p PTL0103 spec.targetRefs[1].name"}},
		"a Gateway, in the old field":        {objects: []string{of("{targetRef: {group: networking.istio.io, kind: Gateway, name: door}, rules: [{}]}")}, proxies: []*status.Proxy{gateway}, want: []string{"p PTL0103 spec.targetRef.name"}},
		"a Gateway of another":               {objects: []string{door, named("istio-system/p", "{targetRefs: [{group: networking.istio.io, kind: Gateway, name: door}], rules: [{}]}")}, proxies: []*status.Proxy{gateway}, want: []string{"p PTL0103 spec.targetRefs[0].name"}},
		"a Gateway that nobody is":           {objects: []string{xdstest.Object("Gateway", "door", "{selector: {app: other}, "+servers+"}"), of("{targetRefs: [{group: networking.istio.io, kind: Gateway, name: door}], rules: [{}]}")}, proxies: []*status.Proxy{gateway}, want: []string{"door PTL0116 spec.selector", "p PTL0371 spec.targetRefs"}},
		"ALLOW of nothing":                   {objects: []string{web("HTTP"), of("{}")}, want: []string{"p PTL0372 spec.rules"}},
		"ALLOW of nothing beside more":       {objects: []string{web("HTTP"), of("{}"), named("q", "{rules: [{}]}")}},
		"ALLOW of nothing, of the mesh":      {objects: []string{web("HTTP"), named("istio-system/p", "{}")}, want: []string{"p PTL0372 spec.rules"}},
		"DENY of all that is allowed":        {objects: []string{web("HTTP"), of("{rules: [{}]}"), named("deny", "{action: DENY, rules: [{}]}")}, want: []string{"p PTL0373 spec.rules beside deny"}},
		"DENY for others":                    {objects: []string{web("HTTP"), of("{rules: [{}]}"), named("deny", "{selector: {matchLabels: {app: db}}, action: DENY, rules: [{}]}")}, want: []string{"deny PTL0371 spec.selector"}},
		"a patch that removes the filter":    {objects: []string{web("HTTP"), of("{action: DENY, rules: [{}]}"), xdstest.Object("EnvoyFilter", "open", removesFilter)}, want: []string{"open PTL0473 spec.configPatches[0].match", "p PTL0474 spec beside open"}},
		"a patch that removes it for others": {objects: []string{web("HTTP"), of("{action: DENY, rules: [{}]}"), xdstest.Object("EnvoyFilter", "open", "{workloadSelector: {labels: {app: db}}, "+removesFilter[1:])}, want: []string{"open PTL0473 spec.configPatches[0].match", "open PTL0371 spec.workloadSelector"}},
		"a path without a slash":             {objects: []string{web("HTTP"), of("{rules: [{to: [{operation: {paths: [admin, /a, '*a']}}]}]}")}, want: []string{"p PTL0374 spec.rules[0].to[0].operation.paths[0]"}},
		"a path with a query":                {objects: []string{web("HTTP"), of("{rules: [{to: [{operation: {paths: ['/a?b=c'], notPaths: ['/a*', '*?x']}}]}]}")}, want: []string{"p PTL0374 spec.rules[0].to[0].operation.notPaths[1]", "p PTL0374 spec.rules[0].to[0].operation.paths[0]", "p PTL0378 spec.rules[0].to[0].operation.notPaths"}},
		"principals that nobody is": {objects: []string{web("HTTP"), strict, of("{rules: [{from: [{source: {principals: ['spiffe://cluster.local/ns/a/sa/b', 'spiffe://*', web, '*', '*/sa/b', cluster.local/ns/a/sa/b], notPrincipals: [cluster.local/ns/a/b]}}], when: [{key: source.principal, values: [x], notValues: ['spiffe://y']}]}]}")}, want: []string{
			"p PTL0374 spec.rules[0].from[0].source.notPrincipals[0]", "p PTL0374 spec.rules[0].from[0].source.principals[0]", "p PTL0374 spec.rules[0].from[0].source.principals[1]", "p PTL0374 spec.rules[0].from[0].source.principals[2]",
			"p PTL0374 spec.rules[0].when[0].notValues[0]", "p PTL0374 spec.rules[0].when[0].values[0]",
		}},
		"a port of the service": {objects: []string{strings.Replace(web("HTTP"), "number: 80,", "number: 80, targetPort: 8080,", 1), of("{rules: [{to: [{operation: {ports: ['80', '8080', '99'], notPorts: ['80']}}], when: [{key: destination.port, notValues: ['80']}]}]}")}, want: []string{
			"p PTL0396 spec.rules[0].to[0].operation.notPorts[0]", "p PTL0396 spec.rules[0].to[0].operation.ports[0]", "p PTL0396 spec.rules[0].when[0].notValues[0]",
		}},
		"a port of the service, at a gateway": {objects: []string{strings.Replace(web("HTTP"), "number: 80,", "number: 80, targetPort: 8080,", 1), of("{rules: [{to: [{operation: {ports: ['80']}}]}]}")}, proxies: []*status.Proxy{sidecar, gateway}},
		"a host with the usual port":          {objects: []string{web("HTTP"), of("{rules: [{to: [{operation: {hosts: ['web.test:80', 'web.test:8080']}}]}]}")}, want: []string{"p PTL0374 spec.rules[0].to[0].operation.hosts[0]"}},
		"principals and plaintext":            {objects: []string{web("HTTP"), of(principals)}, want: []string{"p PTL0375 spec.rules[0].from[0].source.principals"}},
		"a condition and plaintext":           {objects: []string{web("HTTP"), of("{rules: [{when: [{key: source.namespace, notValues: [a]}]}]}")}, want: []string{"p PTL0375 spec.rules[0].when[0].key"}},
		"HTTP on TCP":                         {objects: []string{web("TCP"), of("{rules: [{to: [{operation: {methods: [GET]}}]}]}")}, want: []string{"p PTL0376 spec.rules[0].to[0].operation.methods"}},
		"a token at a gRPC server":            {objects: []string{web("GRPC"), of("{rules: [{from: [{source: {remoteIpBlocks: [10.0.0.0/8]}}]}]}")}, proxies: []*status.Proxy{server}, want: []string{"p PTL0377 spec.rules[0].from[0].source.remoteIpBlocks"}},
		"slashes are not merged":              {objects: []string{web("HTTP"), of("{action: DENY, rules: [{to: [{operation: {paths: [/admin], ports: ['80']}}]}]}")}, want: []string{"p PTL0378 spec.rules[0].to[0].operation.paths"}},
		"slashes are merged":                  {mesh: "pathNormalization: {normalization: MERGE_SLASHES}", objects: []string{web("HTTP"), of("{action: DENY, rules: [{to: [{operation: {paths: [/admin], ports: ['80']}}]}]}")}},
		"a host without its ports":            {objects: []string{web("HTTP"), of("{action: DENY, rules: [{to: [{operation: {hosts: [web.test, 'web.test:*', Db.test], ports: ['80']}}]}]}")}, want: []string{"p PTL0379 spec.rules[0].to[0].operation.hosts[2]"}},
		"hosts that are not allowed":          {objects: []string{web("HTTP"), of("{rules: [{to: [{operation: {hosts: [a.test], notHosts: ['*.test']}}]}]}")}, want: []string{"p PTL0379 spec.rules[0].to[0].operation.notHosts[0]"}},
		"hosts with ports":                    {objects: []string{web("HTTP"), of("{action: DENY, rules: [{to: [{operation: {hosts: [web.test, 'WEB*', 'a.test:81', '*'], ports: ['80']}}]}]}")}},
		"addresses at a sidecar":              {objects: []string{web("HTTP"), of("{rules: [{from: [{source: {remoteIpBlocks: [10.0.0.0/8]}}]}]}")}, want: []string{"p PTL0380 spec.rules[0].from[0].source.remoteIpBlocks"}},
		"a condition at a sidecar":            {objects: []string{web("HTTP"), of("{action: DENY, rules: [{}, {from: [{source: {ipBlocks: [10.0.0.1]}}], when: [{key: source.ip, values: [10.0.0.1]}, {key: remote.ip, notValues: [10.0.0.1]}]}]}")}, want: []string{"p PTL0380 spec.rules[1].when[1].key"}},
		"addresses behind a gateway":          {objects: []string{web("HTTP"), strict, of("{rules: [{from: [{source: {namespaces: [edge], remoteIpBlocks: [10.0.0.0/8]}}], when: [{key: remote.ip, values: [10.0.0.1]}]}]}")}},
		"addresses at a gateway":              {objects: []string{of("{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}], rules: [{from: [{source: {remoteIpBlocks: [10.0.0.0/8]}}]}]}")}, proxies: []*status.Proxy{gateway}},
		"a server that speaks first":          {objects: []string{web("MYSQL"), strict, of(principals)}, want: []string{"p PTL0384 spec.rules"}},
		"AUDIT of one":                        {objects: []string{web("MYSQL"), strict, of(strings.Replace(principals, "{rules", "{action: AUDIT, rules", 1))}},
		"an unknown provider":                 {objects: []string{web("HTTP"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")}, want: []string{"p PTL0381 spec.provider.name"}},
		"AUDIT at a gRPC server":              {objects: []string{web("GRPC"), of("{action: AUDIT, rules: [{}]}")}, proxies: []*status.Proxy{server}, want: []string{"p PTL0377 spec.action"}},
		"CUSTOM at a gRPC server": {mesh: "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: web.test, port: 80}}]",
			objects: []string{web("GRPC"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")}, proxies: []*status.Proxy{server}, want: []string{"p PTL0385 spec.action"}},
		"a provider without a service": {mesh: "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: a.test, port: 80}}]",
			objects: []string{web("HTTP"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")}, want: []string{"p PTL0381 spec.provider.name"}},
		"a provider that the namespace does not see": {mesh: "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: ask.test, port: 80}}]",
			objects: []string{ask, of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")}, proxies: []*status.Proxy{}, want: []string{"p PTL0381 spec.provider.name"}},
		"a provider for others": {mesh: "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: ask.test, port: 80}}]",
			objects: []string{web("HTTP"), ask, of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")}, want: []string{"p PTL0381 spec.provider.name"}},
		"a provider for others, by a policy of theirs": {mesh: "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: ask.test, port: 80}}]",
			objects: []string{web("HTTP"), ask, named("istio-system/p", "{action: CUSTOM, provider: {name: a}, rules: [{}]}")}, want: []string{"p PTL0381 spec.provider.name"}},
		"a provider that the Sidecar hides": {mesh: "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: web.test, port: 80}}]",
			objects: []string{web("HTTP"), xdstest.Object("Sidecar", "s", "{workloadSelector: {labels: {app: web}}, egress: [{hosts: [istio-system/*]}]}"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")},
			want:    []string{"s PTL0124 spec.egress[0].hosts[0]", "p PTL0381 spec.provider.name"}},
		"a provider that another's Sidecar hides": {mesh: "extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: web.test, port: 80}}]",
			objects: []string{web("HTTP"), xdstest.Object("Sidecar", "s", "{workloadSelector: {labels: {app: db}}, egress: [{hosts: [istio-system/*]}]}"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")},
			want:    []string{"s PTL0124 spec.egress[0].hosts[0]", "s PTL0117 spec.workloadSelector"}},
		"a provider": {mesh: "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: web.test, port: 80}}]",
			objects: []string{web("HTTP"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")}},
		"two providers": {mesh: "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: web.test, port: 80}}, {name: b, envoyExtAuthzHttp: {service: web.test, port: 80}}]",
			objects: []string{web("HTTP"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}"), named("q", "{action: CUSTOM, provider: {name: b}, rules: [{}]}")},
			want:    []string{"p PTL0382 spec.provider.name beside q", "q PTL0382 spec.provider.name beside p"}},
		"two providers over HTTP for TCP": {mesh: "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: web.test, port: 80}}, {name: b, envoyExtAuthzHttp: {service: web.test, port: 80}}]",
			objects: []string{web("TCP"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}"), named("q", "{action: CUSTOM, provider: {name: b}, rules: [{}]}")},
			want:    []string{"p PTL0382 spec.provider.name beside q", "q PTL0382 spec.provider.name beside p"}},
		"a provider over HTTP for TCP": {mesh: "extensionProviders: [{name: a, envoyExtAuthzHttp: {service: web.test, port: 80}}]",
			objects: []string{web("TCP"), of("{action: CUSTOM, provider: {name: a}, rules: [{}]}")}, want: []string{"p PTL0383 spec.provider.name"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, c.objects...)
			if c.mesh != "" {
				w.SetMesh(c.mesh)
			}
			known := c.proxies
			if known == nil {
				known = []*status.Proxy{sidecar}
			}
			if got := said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(known...)})); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
