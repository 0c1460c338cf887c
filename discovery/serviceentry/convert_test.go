package serviceentry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
)

const httpPort = "ports: [{number: 80, name: http, protocol: HTTP}]"

// converted returns a mesh with the rows of these ServiceEntries.
func converted(t *testing.T, o serviceentry.Options, objects ...*config.Config) *mesh {
	t.Helper()
	m := start(t, o)
	m.apply(objects...)
	return m
}

func TestOneServicePerHostAndAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, spec string
		want       []string
	}{
		{"no address", `hosts: [a.example], `, []string{"a.example 0.0.0.0"}},
		{"each address", `hosts: [a.example], addresses: [10.1.0.1, "fd00::1"], `, []string{"a.example 10.1.0.1", "a.example fd00::1"}},
		{"each host", `hosts: [b.example, a.example], addresses: [10.1.0.1], `, []string{"a.example 10.1.0.1", "b.example 10.1.0.1"}},
		{"a host twice", `hosts: [a.example, a.example], `, []string{"a.example 0.0.0.0"}},
		{"a CIDR of one address is that address", `hosts: [a.example], addresses: [10.1.0.1/32, "fd00::1/128"], `, []string{"a.example 10.1.0.1", "a.example fd00::1"}},
		{"other CIDRs are kept", `hosts: [a.example], addresses: [10.1.0.0/24], `, []string{"a.example 10.1.0.0/24"}},
		{"an address twice", `hosts: [a.example], addresses: [10.1.0.1, 10.1.0.1/32], `, []string{"a.example 10.1.0.1"}},
		{"a pattern", `hosts: ["*.a.example"], `, []string{"*.a.example 0.0.0.0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := converted(t, serviceentry.Options{}, entry(t, "se", `{`+tc.spec+httpPort+`, resolution: STATIC}`))
			var got []string
			for _, s := range m.store.Services() {
				got = append(got, fmt.Sprint(s.Hostname, " ", s.Address))
			}
			expect(t, got, tc.want)
		})
	}
}

func TestResolution(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		want discovery.Resolution
	}{
		{"STATIC", discovery.ClientSideLB}, {"DNS", discovery.DNSLB},
		{"DNS_ROUND_ROBIN", discovery.DNSRoundRobinLB}, {"NONE", discovery.Passthrough},
	} {
		m := converted(t, serviceentry.Options{}, entry(t, "se", `{hosts: [a.example], `+httpPort+`, resolution: `+tc.name+`}`))
		if got := m.row("shop", "a.example").Services[0].Resolution; got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestDynamicDNSHasThePortsWhoseRequestsNameAHost(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{}, entry(t, "se", `{hosts: ["*.a.example"], resolution: DYNAMIC_DNS, workloadSelector: {labels: {app: a}},
		ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: tcp, protocol: TCP}, {number: 82, name: grpc, protocol: GRPC}, {number: 83, name: none},
			{number: 84, name: tls, protocol: TLS}, {number: 85, name: https, protocol: HTTPS}]}`),
		workload(t, "w", `{address: 10.0.0.1, labels: {app: a}}`))
	row := m.row("shop", "*.a.example")
	expect(t, row.Services[0].Resolution, discovery.DynamicDNS)
	expect(t, row.Services[0].Ports, []discovery.Port{
		{Name: "http", Number: 80, Protocol: discovery.HTTP}, {Name: "grpc", Number: 82, Protocol: discovery.GRPC},
		{Name: "tls", Number: 84, Protocol: discovery.TLS}, {Name: "https", Number: 85, Protocol: discovery.HTTPS}})
	expect(t, len(row.Endpoints), 0)
}

func TestHTTPProxyIsHTTP(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{}, entry(t, "se", `{hosts: [a.example], resolution: STATIC, ports: [{number: 3128, name: proxy, protocol: http_proxy}]}`))
	expect(t, m.row("shop", "a.example").Services[0].Ports[0].Protocol, discovery.HTTP)
}

func TestServiceHasWhatTheObjectSays(t *testing.T) {
	t.Parallel()
	se := with(entry(t, "se", `{hosts: [a.example], location: MESH_INTERNAL, resolution: NONE,
		ports: [{number: 80, name: http, protocol: http, targetPort: 8080}, {number: 90, name: raw}],
		subjectAltNames: [spiffe://b, spiffe://a], workloadSelector: {labels: {app: a}}, exportTo: [".", other]}`),
		func(c *config.Config) { c.Labels = map[string]string{"team": "x"} })
	m := converted(t, serviceentry.Options{}, se)
	expect(t, m.row("shop", "a.example").Services[0], &discovery.Service{
		Hostname: "a.example", Address: "0.0.0.0", Resolution: discovery.Passthrough,
		Ports: []discovery.Port{
			{Name: "http", Number: 80, Protocol: discovery.HTTP, TargetPort: 8080}, {Name: "raw", Number: 90},
		},
		ServiceAccounts: []string{"spiffe://a", "spiffe://b"}, CreationTime: time.Unix(1, 0),
		Attributes: discovery.Attributes{
			Provider: discovery.External, Name: "se", Namespace: "shop",
			Labels: labels.Instance{"team": "x"}, LabelSelectors: labels.Instance{"app": "a"},
			ExportTo: discovery.Visibility{"other", "shop"},
		},
	})
}

func TestLocation(t *testing.T) {
	t.Parallel()
	for location, external := range map[string]bool{"MESH_EXTERNAL": true, "MESH_INTERNAL": false} {
		m := converted(t, serviceentry.Options{}, entry(t, "se", `{hosts: [a.example], `+httpPort+`, resolution: STATIC, location: `+location+`}`))
		if got := m.row("shop", "a.example").Services[0].MeshExternal; got != external {
			t.Errorf("%s: external is %t", location, got)
		}
	}
}

func TestExportToFallsBackOnTheMeshDefault(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		exportTo string
		want     discovery.Visibility
	}{
		{`[]`, discovery.Visibility{"shop"}}, {`["*"]`, discovery.Visibility{"*"}},
	} {
		m := converted(t, serviceentry.Options{DefaultExportTo: func(*cache.Snapshot) []string { return []string{"."} }},
			entry(t, "se", `{hosts: [a.example], `+httpPort+`, resolution: STATIC, exportTo: `+tc.exportTo+`}`))
		expect(t, m.row("shop", "a.example").Services[0].Attributes.ExportTo, tc.want)
	}
}

func TestTargetPortOnlyOverridesWherePassthrough(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{}, entry(t, "se", `{hosts: [a.example], resolution: STATIC,
		ports: [{number: 80, name: http, targetPort: 8080}]}`))
	expect(t, m.row("shop", "a.example").Services[0].Ports[0].TargetPort, 0)
}

func TestTargetPortPriority(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, endpoint, targetPort, want string }{
		{"a unix socket has none", `{address: "unix:///run/a.sock", ports: {http: 9}}`, "targetPort: 8080", "http=/run/a.sock:0"},
		{"an abstract unix socket has none", `{address: "unix://@a"}`, "targetPort: 8080", "http=@a:0"},
		{"the endpoint's port", `{address: 10.0.0.1, ports: {http: 9}}`, "targetPort: 8080", "http=10.0.0.1:9"},
		{"the target port", `{address: 10.0.0.1, ports: {other: 9}}`, "targetPort: 8080", "http=10.0.0.1:8080"},
		{"the service port", `{address: 10.0.0.1}`, "", "http=10.0.0.1:80"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := converted(t, serviceentry.Options{}, entry(t, "se",
				`{hosts: [a.example], resolution: STATIC, endpoints: [`+tc.endpoint+`], ports: [{number: 80, name: http, `+tc.targetPort+`}]}`))
			expect(t, m.endpoints("shop", "a.example"), []string{tc.want})
		})
	}
}

func TestWhichAddressesAreEndpoints(t *testing.T) {
	t.Parallel()
	const all = `endpoints: [{address: 10.0.0.1}, {address: b.example}, {address: "unix:///run/a.sock"}, {address: "", network: net1}]`
	for _, tc := range []struct {
		name, spec string
		want       []string
	}{
		{"STATIC has no host names", `resolution: STATIC, ` + all, []string{"http=10.0.0.1:80", "http=/run/a.sock:0"}},
		{"NONE has no host names", `resolution: NONE, ` + all, []string{"http=10.0.0.1:80", "http=/run/a.sock:0"}},
		{"DNS has no sockets", `resolution: DNS, ` + all, []string{"http=10.0.0.1:80", "http=b.example:80"}},
		{"DNS_ROUND_ROBIN has one", `resolution: DNS_ROUND_ROBIN, endpoints: [{address: b.example}, {address: 10.0.0.1}]`, []string{"http=b.example:80"}},
		{"DNS without any has its host", `resolution: DNS`, []string{"http=a.example:80"}},
		{"DNS_ROUND_ROBIN without any has its host", `resolution: DNS_ROUND_ROBIN`, []string{"http=a.example:80"}},
		{"DNS with a selector has not its host", `resolution: DNS, workloadSelector: {labels: {app: a}}`, nil},
		{"STATIC without any has none", `resolution: STATIC`, nil},
		{"NONE without any has none", `resolution: NONE`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := converted(t, serviceentry.Options{}, entry(t, "se", `{hosts: [a.example], `+httpPort+`, `+tc.spec+`}`))
			expect(t, m.endpoints("shop", "a.example"), tc.want)
		})
	}
}

func TestDNSWithoutEndpointsHasEachHost(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{Cluster: "c1"}, entry(t, "se", `{hosts: [a.example, b.example, "*.c.example"], resolution: DNS,
		ports: [{number: 80, name: http}, {number: 443, name: tls, targetPort: 8443}]}`))
	expect(t, m.endpoints("shop", "a.example"), []string{"http=a.example:80", "tls=a.example:8443"})
	expect(t, m.endpoints("shop", "b.example"), []string{"http=b.example:80", "tls=b.example:8443"})
	expect(t, m.endpoints("shop", "*.c.example"), []string(nil))
	expect(t, m.row("shop", "a.example").Endpoints[0], &discovery.Endpoint{
		Address: "a.example", Port: 80, ServicePortName: "http", ServicePort: 80, Weight: 1, TLSMode: discovery.TLSModeDisabled,
		Locality: discovery.Locality{Cluster: "c1"}, Namespace: "shop", WorkloadName: "se",
	})
}

func TestRoundRobinHasOneEndpointPerPort(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{}, entry(t, "se", `{hosts: [a.example], resolution: DNS_ROUND_ROBIN,
		ports: [{number: 80, name: http}, {number: 443, name: tls}], endpoints: [{address: b.example}, {address: c.example}]}`))
	expect(t, m.endpoints("shop", "a.example"), []string{"http=b.example:80", "tls=b.example:443"})
}

func TestEndpointHasWhatTheEntrySays(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{Cluster: "c1", TrustDomain: "td"}, entry(t, "se", `{hosts: [a.example], `+httpPort+`, resolution: STATIC,
		endpoints: [{address: 10.0.0.1}, {address: 10.0.0.2, labels: {v: "2"}, network: net1, locality: eu/a/b, weight: 7, serviceAccount: web}]}`))
	expect(t, m.row("shop", "a.example").Endpoints, []*discovery.Endpoint{
		{
			Address: "10.0.0.1", Port: 80, ServicePortName: "http", ServicePort: 80, Weight: 1, TLSMode: discovery.TLSModeDisabled,
			Locality: discovery.Locality{Cluster: "c1"}, Namespace: "shop", WorkloadName: "se-0",
		},
		{
			Address: "10.0.0.2", Port: 80, ServicePortName: "http", ServicePort: 80, Weight: 7, TLSMode: discovery.TLSModeIstio,
			Labels: labels.Instance{"v": "2"}, Network: "net1", ServiceAccount: "spiffe://td/ns/shop/sa/web",
			Locality: discovery.Locality{Label: "eu/a/b", Cluster: "c1"}, Namespace: "shop", WorkloadName: "se-1",
		},
	})
}

// selecting returns a ServiceEntry that selects app=a.
func selecting(t tb, name, host string) *config.Config {
	return entry(t, name, `{hosts: [`+host+`], `+httpPort+`, resolution: STATIC, workloadSelector: {labels: {app: a}}}`)
}

func TestTLSMode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, spec, want string }{
		{"nothing said", `labels: {app: a}`, discovery.TLSModeDisabled},
		{"a service account", `labels: {app: a}, serviceAccount: web`, discovery.TLSModeIstio},
		{"the label outranks it", `labels: {app: a, security.istio.io/tlsMode: disabled}, serviceAccount: web`, discovery.TLSModeDisabled},
		{"the label alone", `labels: {app: a, security.istio.io/tlsMode: istio}`, discovery.TLSModeIstio},
	} {
		m := converted(t, serviceentry.Options{}, selecting(t, "se", "a.example"), workload(t, "w", `{address: 10.0.0.1, `+tc.spec+`}`))
		if got := m.row("shop", "a.example").Endpoints[0].TLSMode; got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestLocality(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, spec, want string }{
		{"none", `labels: {app: a}`, ""},
		{"the label, dots for slashes", `labels: {app: a, istio-locality: eu.a.b}`, "eu/a/b"},
		{"the field outranks it", `labels: {app: a, istio-locality: eu.a.b}, locality: us/x`, "us/x"},
	} {
		m := converted(t, serviceentry.Options{}, selecting(t, "se", "a.example"), workload(t, "w", `{address: 10.0.0.1, `+tc.spec+`}`))
		if got := m.row("shop", "a.example").Endpoints[0].Locality.Label; got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestMetadataLabelsOutrankThoseOfTheSpec(t *testing.T) {
	t.Parallel()
	w := with(workload(t, "w", `{address: 10.0.0.1, labels: {app: b, v: "1"}}`), func(c *config.Config) {
		c.Labels = map[string]string{"app": "a", "zone": "z"}
	})
	m := converted(t, serviceentry.Options{}, selecting(t, "se", "a.example"), w)
	expect(t, m.row("shop", "a.example").Endpoints[0].Labels, labels.Instance{"app": "a", "v": "1", "zone": "z"})
}

func TestWorkloadEntryEndpoint(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{Cluster: "c1"}, selecting(t, "se", "a.example"),
		workload(t, "w", `{address: 10.0.0.1, labels: {app: a}, ports: {http: 8080}, serviceAccount: web}`))
	expect(t, m.row("shop", "a.example").Endpoints, []*discovery.Endpoint{{
		Address: "10.0.0.1", Port: 8080, ServicePortName: "http", ServicePort: 80, Weight: 1, TLSMode: discovery.TLSModeIstio,
		Labels: labels.Instance{"app": "a"}, ServiceAccount: "spiffe://cluster.local/ns/shop/sa/web",
		Locality: discovery.Locality{Cluster: "c1"}, Namespace: "shop", WorkloadName: "w",
	}})
}

func TestSelectorSelectsWithinItsNamespace(t *testing.T) {
	t.Parallel()
	elsewhere := with(workload(t, "w2", `{address: 10.0.0.2, labels: {app: a}}`), func(c *config.Config) { c.Namespace = "other" })
	m := converted(t, serviceentry.Options{}, selecting(t, "se", "a.example"), elsewhere,
		workload(t, "w1", `{address: 10.0.0.1, labels: {app: a}}`), workload(t, "w3", `{address: 10.0.0.3, labels: {app: b}}`))
	expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.1:80"})
}

func TestEmptySelectorSelectsAll(t *testing.T) {
	t.Parallel()
	m := converted(t, serviceentry.Options{},
		entry(t, "se", `{hosts: [a.example], `+httpPort+`, resolution: STATIC, workloadSelector: {}}`), workload(t, "w", `{address: 10.0.0.1}`))
	expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.1:80"})
}

func TestHostNamesOfWorkloadsNeedDNS(t *testing.T) {
	t.Parallel()
	for resolution, want := range map[string][]string{"STATIC": nil, "DNS": {"http=vm.example:80"}} {
		m := converted(t, serviceentry.Options{}, workload(t, "w", `{address: vm.example, labels: {app: a}}`),
			entry(t, "se", `{hosts: [a.example], `+httpPort+`, resolution: `+resolution+`, workloadSelector: {labels: {app: a}}}`))
		expect(t, m.endpoints("shop", "a.example"), want)
	}
}

func TestOneHostInSeveralServiceEntries(t *testing.T) {
	t.Parallel()
	entryWith := func(t *testing.T, name string, second int64, spec string) *config.Config {
		return with(entry(t, name, `{hosts: [a.example], `+httpPort+`, `+spec+`}`), func(c *config.Config) {
			c.CreationTimestamp = time.Unix(second, 0)
		})
	}
	t.Run("their endpoints are one set, the oldest first", func(t *testing.T) {
		t.Parallel()
		m := converted(t, serviceentry.Options{},
			entryWith(t, "first", 3, `resolution: STATIC, endpoints: [{address: 10.0.0.3}, {address: 10.0.0.1}]`),
			entryWith(t, "second", 2, `resolution: STATIC, endpoints: [{address: 10.0.0.2}, {address: 10.0.0.1, weight: 9}]`))
		expect(t, m.endpoints("shop", "a.example"), []string{"http=10.0.0.2:80", "http=10.0.0.1:80", "http=10.0.0.3:80"})
		expect(t, m.row("shop", "a.example").Endpoints[1].Weight, uint32(9))
		expect(t, m.row("shop", "a.example").Services[0].Attributes.Name, "second")
	})
	t.Run("the oldest says whether there may be more than one", func(t *testing.T) {
		t.Parallel()
		m := converted(t, serviceentry.Options{},
			entryWith(t, "first", 3, `resolution: STATIC, endpoints: [{address: 10.0.0.3}]`),
			entryWith(t, "second", 2, `resolution: DNS_ROUND_ROBIN, endpoints: [{address: b.example}]`))
		expect(t, m.endpoints("shop", "a.example"), []string{"http=b.example:80"})
	})
	t.Run("namespaces have rows of their own", func(t *testing.T) {
		t.Parallel()
		m := converted(t, serviceentry.Options{}, entryWith(t, "first", 1, `resolution: DNS`),
			with(entryWith(t, "first", 1, `resolution: DNS`), func(c *config.Config) { c.Namespace = "other" }))
		expect(t, len(m.xds.Rows()), 2)
	})
}

func TestSelectedWorkloadsAreInOrderOfCreation(t *testing.T) {
	t.Parallel()
	at := func(name string, second int64, address string) *config.Config {
		return with(workload(t, name, `{address: `+address+`, labels: {app: a}}`), func(c *config.Config) { c.CreationTimestamp = time.Unix(second, 0) })
	}
	m := converted(t, serviceentry.Options{}, at("a", 3, "10.0.0.3"), at("c", 2, "10.0.0.2"), at("b", 2, "10.0.0.1"), selecting(t, "se", "a.example"))
	want := []string{"http=10.0.0.1:80", "http=10.0.0.2:80", "http=10.0.0.3:80"}
	expect(t, m.endpoints("shop", "a.example"), want)
	m.apply(at("d", 1, "10.0.0.0"))
	expect(t, m.endpoints("shop", "a.example"), append([]string{"http=10.0.0.0:80"}, want...))
}
