package verdict_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// certified is a sidecar with a certificate of the mesh that captures traffic.
func certified(node, address string) *status.Proxy {
	p := placed(node, address, "eu")
	p.Certified = true
	return p
}

// TestVerdictsOfPeers: what is odd about PeerAuthentications, and about endpoints that take mutual
// TLS or do not.
func TestVerdictsOfPeers(t *testing.T) {
	t.Parallel()
	web := func(endpoints string) string {
		return xdstest.Object("ServiceEntry", "web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ["+endpoints+"]}")
	}
	policy := func(name, spec string) string { return xdstest.Object("PeerAuthentication", name, spec) }
	const (
		labelled = "{address: 10.0.0.1, serviceAccount: web, labels: {app: web}}"
		strict   = "{mtls: {mode: STRICT}}"
		ofWeb    = "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}"
	)
	ingress := xdstest.Object("Sidecar", "web", "{workloadSelector: {labels: {app: web}}, ingress: [{port: {number: 9443, name: http, protocol: HTTP}, defaultEndpoint: 127.0.0.1:8000}]}")
	uncapturing := func(kind discovery.ProxyType) *status.Proxy {
		p := certified(string(kind), "10.0.0.1")
		p.Type, p.Interception = string(kind), string(discovery.InterceptionNone)
		return p
	}
	old := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 60
	for name, c := range map[string]struct {
		objects []string
		proxies []*status.Proxy
		minute  int64
		mesh    string // its configuration
		want    []string
	}{
		"nothing odd": {objects: []string{web(labelled), policy("default", strict)}, proxies: []*status.Proxy{certified("a", "10.0.0.1")}},
		"two of the namespace": {
			objects: []string{policy("a", strict), policy("b", "{mtls: {mode: DISABLE}}")}, want: []string{"b PTL0361 spec beside a"}},
		"two of the mesh": {
			objects: []string{policy("istio-system/a", strict), policy("istio-system/b", strict)}, want: []string{"b PTL0361 spec beside a"}},
		"two of a workload": {
			objects: []string{policy("a", ofWeb), policy("b", "{selector: {matchLabels: {tier: x}}, mtls: {mode: DISABLE}}")},
			proxies: []*status.Proxy{{Node: "sidecar~1~w~d", Type: "sidecar", Namespace: "default", Addresses: []string{"10.0.0.1"}, Labels: map[string]string{"app": "web", "tier": "x"}, Replica: "r", Certified: true}},
			want:    []string{"b PTL0361 spec beside a"}},
		"two of different workloads": {
			objects: []string{policy("a", ofWeb), policy("b", "{selector: {matchLabels: {app: db}}}")},
			proxies: []*status.Proxy{certified("a", "10.0.0.1")}, want: []string{"b PTL0362 spec.selector"}},
		"a selector in the root":     {objects: []string{policy("istio-system/a", ofWeb)}, want: []string{"a PTL0362 spec.selector"}},
		"a selector that has nobody": {objects: []string{policy("a", ofWeb)}, want: []string{"a PTL0362 spec.selector"}},
		"endpoints without a label": {
			objects: []string{web("{address: 10.0.0.1, labels: {app: web}}, " + labelled), policy("default", strict)}, want: []string{"default PTL0363 spec.mtls.mode"}},
		"PERMISSIVE refuses nobody":   {objects: []string{web("{address: 10.0.0.1}"), policy("default", "{mtls: {mode: PERMISSIVE}}")}},
		"STRICT of another namespace": {objects: []string{web("{address: 10.0.0.1}"), policy("shop/default", strict)}},
		"STRICT of the mesh":          {objects: []string{web("{address: 10.0.0.1}"), policy("istio-system/default", strict)}, want: []string{"default PTL0363 spec.mtls.mode"}},
		"a rule that tells clients something else": {
			objects: []string{web(labelled), policy("default", strict), rule("web", "{host: web.test, trafficPolicy: {tls: {mode: DISABLE}}}")}, want: []string{"default PTL0363 spec.mtls.mode"}},
		"clients that encrypt by rules alone": {
			objects: []string{web(labelled), policy("default", strict)}, mesh: "enableAutoMtls: false", want: []string{"default PTL0363 spec.mtls.mode"}},
		"clients that have such a rule": {
			objects: []string{web(labelled), policy("default", strict), rule("web", "{host: web.test, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")}, mesh: "enableAutoMtls: false", want: []string{"web PTL0304 spec.trafficPolicy.tls.mode"}},
		"ports of a workload": {
			objects: []string{web(labelled), ingress, policy("web", "{selector: {matchLabels: {app: web}}, portLevelMtls: {80: {}, 9443: {}, 9444: {mode: DISABLE}}}")},
			proxies: []*status.Proxy{uncapturing(discovery.Sidecar)}, want: []string{"web PTL0370 spec.portLevelMtls[9444]"}},
		"ports of a workload that captures": {
			objects: []string{web(labelled), policy("web", "{selector: {matchLabels: {app: web}}, portLevelMtls: {9444: {mode: DISABLE}}}")},
			proxies: []*status.Proxy{certified("a", "10.0.0.1")}},
		"ports of a gRPC server": {
			objects: []string{web(labelled), policy("web", "{selector: {matchLabels: {app: web}}, portLevelMtls: {9444: {mode: DISABLE}}}")},
			proxies: []*status.Proxy{uncapturing(discovery.Sidecar), uncapturing(discovery.Proxyless)}},
		"proxies without a certificate": {
			objects: []string{web(labelled), policy("default", strict)}, proxies: []*status.Proxy{placed("b", "10.0.0.2", "eu")}, want: []string{"default PTL0363 spec.mtls.mode"}},
		"a sidecar that no label tells of": {
			objects: []string{web("{address: 10.0.0.1, labels: {app: web}}")}, proxies: []*status.Proxy{certified("a", "10.0.0.1")}, want: []string{"web PTL0364 spec.endpoints[0]"}},
		"a sidecar that is to be passed by": {
			objects: []string{web("{address: 10.0.0.1, labels: {security.istio.io/tlsMode: disabled}}")}, proxies: []*status.Proxy{certified("a", "10.0.0.1")}},
		"a label, and nobody for an hour": {objects: []string{web(labelled)}, minute: old, want: []string{"web PTL0365 spec.endpoints[0]"}},
		"a label, and nobody yet":         {objects: []string{web(labelled)}},
		"a label without an account": {
			objects: []string{web("{address: 10.0.0.1, labels: {security.istio.io/tlsMode: istio}}")}, want: []string{"web PTL0366 spec.endpoints[0]"}},
		"a label, and outside the mesh": {
			objects: []string{strings.Replace(web(labelled), "location: MESH_INTERNAL, ", "", 1)}, want: []string{"web PTL0360 spec.location"}},
		"outside the mesh without a label": {objects: []string{strings.Replace(web("{address: 10.0.0.1}"), "location: MESH_INTERNAL, ", "", 1)}},
		"outside the mesh with a rule": {
			objects: []string{strings.Replace(web(labelled), "location: MESH_INTERNAL, ", "", 1), rule("web", "{host: web.test, trafficPolicy: {tls: {mode: DISABLE}}}")}},
		"a server that speaks first": {
			objects: []string{xdstest.Object("ServiceEntry", "db", "{hosts: [db.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 3306, name: db, protocol: MYSQL}], endpoints: [{address: 10.0.0.1, serviceAccount: db, labels: {security.istio.io/tlsMode: istio}}]}")},
			want:    []string{"db PTL0367 spec.ports[0].protocol"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, c.objects...)
			if c.mesh != "" {
				w.SetMesh(c.mesh)
			}
			facts := verdict.Facts{Mesh: w.Context(), Proxies: proxies(c.proxies...), Minute: c.minute}
			got := slices.DeleteFunc(said((*index.Index)(nil).Next(facts)), func(v string) bool { return strings.Contains(v, "PTL0126") })
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if c.minute == 0 {
				return
			}
			before := facts
			before.Minute -= 10 * 365 * 24 * 60 // as the time goes on, the entry is judged again
			if got := said((*index.Index)(nil).Next(before).Next(facts)); !slices.Equal(got, c.want) {
				t.Errorf("after a time: %q, want %q", got, c.want)
			}
		})
	}
}
