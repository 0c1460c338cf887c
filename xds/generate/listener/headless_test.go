package listener_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// workloads writes a ServiceEntry whose workloads have the label app.
func workloads(name, port string) string {
	return xdstest.Object("ServiceEntry", name, fmt.Sprintf(
		"{hosts: [%s.example.com], location: MESH_INTERNAL, resolution: NONE, ports: [{number: %s}], workloadSelector: {labels: {app: %s}}}", name, port, name))
}

// pod writes a workload of the service app.
func pod(name, app, address string) string {
	return xdstest.Object("WorkloadEntry", name, fmt.Sprintf("{address: '%s', labels: {app: %s}}", address, app))
}

// cluster is a headless Service of Kubernetes with pods at addresses.
func cluster(protocol discovery.Protocol, addresses ...string) discovery.Row {
	h := host.Name("k.default.svc.cluster.local")
	row := discovery.Row{Hostname: h, Namespace: "default", Services: []*discovery.Service{{
		Hostname: h, Address: discovery.UnspecifiedIP, Resolution: discovery.Passthrough, Ports: []discovery.Port{{Name: "p", Number: 5432, Protocol: protocol}},
		Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Name: "k", Namespace: "default"},
	}}}
	for i, a := range addresses {
		e := &discovery.Endpoint{Address: a, Port: 5432, ServicePortName: "p", Weight: 1, Namespace: "default", WorkloadName: fmt.Sprint("k-", i)}
		if strings.Contains(a, ":") { // as of a Service whose first family is IPv4
			e.Health = discovery.OutOfUse
		}
		row.Endpoints = append(row.Endpoints, e)
	}
	return row
}

// TestHeadlessListeners: a port without HTTP of a headless service has a listener at the address of
// each workload, where the egress listener has no port and no address of its own.
func TestHeadlessListeners(t *testing.T) {
	t.Parallel()
	sidecar := func(egress string) string { return xdstest.Object("Sidecar", "s", "{egress: ["+egress+"]}") }
	v6, uncaptured := captured, xdstest.Node{}
	v6.IP = "fd00::99"
	dual := captured
	dual.MoreIPs = []string{"fd00::99"}
	two := []string{workloads("a", tcp5432), pod("w1", "a", "10.1.0.1"), pod("w2", "a", "10.1.0.2")}
	with := func(more ...string) []string { return append(slices.Clone(two), more...) }
	tests := []struct {
		name string
		node *xdstest.Node
		mesh []string
		row  discovery.Row
		want []string // beside the virtual ones
	}{
		{name: "one at each workload", mesh: two, want: []string{"10.1.0.1_5432", "10.1.0.2_5432"}},
		{name: "none without workloads", mesh: []string{workloads("a", tcp5432)}},
		{name: "no declared protocol", mesh: []string{workloads("a", plain5432), two[1]}, want: []string{"10.1.0.1_5432"}},
		{name: "HTTP is at every address", mesh: []string{workloads("a", http5432), two[1]}, want: []string{"0.0.0.0_5432"}},
		{name: "UDP has none", mesh: []string{workloads("a", "53, name: dns, protocol: UDP"), two[1]}},
		{name: "without a selector there is no telling", mesh: []string{xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: NONE, ports: [{number: "+tcp5432+"}]}")}, want: []string{"0.0.0.0_5432"}},
		{name: "addresses of its own", mesh: []string{xdstest.Object("ServiceEntry", "a", "{hosts: [a.example.com], resolution: NONE, addresses: [10.9.0.1], workloadSelector: {labels: {app: a}}, ports: [{number: "+tcp5432+"}]}"), two[1]}, want: []string{"10.9.0.1_5432"}},
		{name: "a workload of two services", mesh: with(xdstest.Object("ServiceEntry", "b", "{hosts: [b.example.com], resolution: NONE, ports: [{number: "+tcp5432+"}, {number: 81, name: q, protocol: TCP}], workloadSelector: {labels: {app: a}}}")),
			want: []string{"10.1.0.1_5432", "10.1.0.1_81", "10.1.0.2_5432", "10.1.0.2_81"}},
		{name: "families that the proxy has", mesh: with(pod("w3", "a", "fd00:0::3")), want: []string{"10.1.0.1_5432", "10.1.0.2_5432"}},
		{name: "IPv6 alone", node: &v6, mesh: with(pod("w3", "a", "fd00:0::3")), want: []string{"fd00::3_5432"}},
		{name: "both", node: &dual, mesh: with(pod("w3", "a", "fd00:0::3")), want: []string{"10.1.0.1_5432", "10.1.0.2_5432", "fd00::3_5432"}},
		{name: "no host names", mesh: with(pod("w3", "a", "w3.example.com")), want: []string{"10.1.0.1_5432", "10.1.0.2_5432"}},
		{name: "none without capture", node: &uncaptured, mesh: two, want: []string{"127.0.0.1_5432"}},
		{name: "an egress port", mesh: with(sidecar("{port: {number: 5432, protocol: TCP, name: tcp}, hosts: ['*/*']}")), want: []string{"0.0.0.0_5432"}},
		{name: "an egress address", mesh: with(sidecar("{bind: 10.7.0.1, hosts: ['*/*']}")), want: []string{"10.7.0.1_5432"}},
		{name: "an egress port of another number", mesh: with(sidecar("{port: {number: 80, protocol: TCP, name: tcp}, hosts: ['*/*']}, {hosts: ['*/*']}")), want: []string{"10.1.0.1_5432", "10.1.0.2_5432"}},
		{name: "not those unseen", mesh: with(sidecar("{hosts: ['other/*']}"))},
		{name: "pods", row: cluster(discovery.TCP, "10.1.0.1", "10.1.0.2", "fd00::1"), want: []string{"10.1.0.1_5432", "10.1.0.2_5432"}},
		{name: "the other addresses of pods", node: &dual, row: cluster(discovery.TCP, "10.1.0.1", "fd00::1"), want: []string{"10.1.0.1_5432", "fd00::1_5432"}},
		{name: "no pods", row: cluster(discovery.TCP)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tt.mesh...)
			if tt.row.Hostname != "" {
				w.Offer(tt.row)
			}
			node := captured
			if tt.node != nil {
				node = *tt.node
			}
			got := slices.DeleteFunc(w.Simulate(node).Listeners(), func(name string) bool { return strings.HasPrefix(name, "virtual") })
			if d := cmp.Diff(tt.want, got); d != "" && len(tt.want)+len(got) > 0 {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestHeadlessConnections: a connection to the address of a workload is for the headless service,
// the oldest of several.
func TestHeadlessConnections(t *testing.T) {
	t.Parallel()
	const a, b = "outbound|5432||a.example.com", "outbound|5432||b.example.com"
	tcp := func(address string) simulate.Request {
		return simulate.Request{Address: address, Port: 5432, Protocol: simulate.TCP}
	}
	http := func(address, host string) simulate.Request {
		return simulate.Request{Address: address, Port: 5432, Host: host}
	}
	two := []string{workloads("b", tcp5432), workloads("a", tcp5432), pod("b1", "b", "10.1.0.2"), pod("a1", "a", "10.1.0.1")}
	both := strings.Replace(workloads("a", tcp5432), "app: a", "app: b", 1)
	tests := []struct {
		name    string
		mesh    []string
		request simulate.Request
		want    string
	}{
		{name: "each service has its own", request: tcp("10.1.0.1"), mesh: two, want: a},
		{name: "on one port", request: tcp("10.1.0.2"), mesh: two, want: b},
		{name: "an address of neither", request: tcp("10.1.0.3"), mesh: two, want: "PassthroughCluster"},
		{name: "a workload of both: the oldest", request: tcp("10.1.0.2"), mesh: []string{two[0], both, two[2]}, want: b},
		{name: "the oldest, whatever its name", request: tcp("10.1.0.2"), mesh: []string{both, two[0], two[2]}, want: a},
		{name: "an older service at the address", request: tcp("10.1.0.2"), mesh: []string{at("a", tcp5432, "10.1.0.2"), two[0], two[2]}, want: a},
		{name: "a younger one", request: tcp("10.1.0.2"), mesh: []string{two[0], at("a", tcp5432, "10.1.0.2"), two[2]}, want: b},
		{name: "an older one without an address has the rest", request: tcp("10.1.0.2"), mesh: []string{at("a", tcp5432), two[0], two[2]}, want: b},
		{name: "the rest", request: tcp("10.1.0.9"), mesh: []string{two[0], two[2], at("a", tcp5432)}, want: a},
		{name: "HTTP found on a port that declares nothing", request: http("10.1.0.1", "x.example.org"), mesh: []string{workloads("a", plain5432), two[3], at("b", http5432)}, want: a},
		{name: "what is not HTTP there", request: tcp("10.1.0.1"), mesh: []string{workloads("a", plain5432), two[3], at("b", http5432)}, want: a},
		{name: "a route of what was found to be HTTP", request: http("10.1.0.1", "x.example.org"), want: "418", mesh: []string{workloads("a", plain5432), two[3],
			xdstest.Object("VirtualService", "a", "{hosts: [a.example.com], http: [{directResponse: {status: 418}}]}")}},
		{name: "a route of TCP", request: tcp("10.1.0.1"), want: b, mesh: append(slices.Clone(two),
			xdstest.Object("VirtualService", "a", "{hosts: [a.example.com], tcp: [{route: [{destination: {host: b.example.com}}]}]}"))},
		{name: "HTTP by its host, on the port of a headless service", request: http("10.1.1.1", "b.example.com"), mesh: []string{workloads("a", tcp5432), two[3], at("b", http5432)}, want: b},
		{name: "an egress port: the oldest of those without an address", request: tcp("10.1.0.1"), want: b, mesh: append(slices.Clone(two),
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 5432, protocol: TCP, name: tcp}, hosts: ['*/*']}]}"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := xdstest.NewWorld(t, tt.mesh...).Simulate(captured).Run(tt.request).String(); got != tt.want && got != tt.want+" (missing)" {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// manyPods returns a mesh with a headless service of 1,000 pods.
func manyPods(t testing.TB) (*xdstest.World, []string) {
	var addresses []string
	for i := range 1000 {
		addresses = append(addresses, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1))
	}
	w := xdstest.NewWorld(t)
	w.Offer(cluster(discovery.TCP, addresses...))
	return w, addresses
}

// TestOnePodIsOneListener: a pod that comes or goes concerns the listener at its address alone. What
// else is known of pods concerns none.
func TestOnePodIsOneListener(t *testing.T) {
	t.Parallel()
	w, addresses := manyPods(t)
	was := map[string][]mesh.Dependency{}
	for name := range (listener.Generator{}).Affected(w.View(captured), mesh.Diff(nil, w.Context())) {
		v := w.View(captured).Recording()
		if _, err := generate.Build(listener.Generator{}, v, name); err != nil {
			t.Fatal(err)
		}
		was[name] = v.Dependencies()
	}
	concerned := func(from *mesh.PushContext) (out []string) {
		v := w.View(captured)
		out = slices.Collect((listener.Generator{}).Affected(v, mesh.Diff(from, w.Context())))
		for name, reads := range was {
			if slices.ContainsFunc(reads, func(r mesh.Dependency) bool { return v.Answer(r.Query) != r.Answer }) {
				out = append(out, name)
			}
		}
		return out
	}
	for _, tt := range []struct {
		name      string
		addresses []string
		health    discovery.Health
		want      []string
	}{
		{"one is unhealthy", addresses, discovery.Unhealthy, nil},
		{"a pod comes", append(slices.Clone(addresses), "10.2.0.1"), discovery.Healthy, []string{"10.2.0.1_5432"}},
		{"and goes, so that all is as before", addresses, discovery.Healthy, nil},
		{"another goes", addresses[:999], discovery.Healthy, []string{"10.1.3.250_5432"}},
	} {
		from, row := w.Context(), cluster(discovery.TCP, tt.addresses...)
		row.Endpoints[500].Health = tt.health
		w.Offer(row)
		if d := cmp.Diff(tt.want, concerned(from)); d != "" {
			t.Errorf("%s: listeners (-want +got):\n%s", tt.name, d)
		}
	}
}
