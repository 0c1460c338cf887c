package desired_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// counting is counted, and hides nothing of its generator.
type counting struct{ counted }

func (c counting) Unwrap() generate.Generator { return c.Generator }

// countedTypes returns the served types, and the counts of what their generators build by type.
func countedTypes() ([]generate.ResourceType, func() string) {
	types := catalogue.Types()
	counts := make([]atomic.Int32, len(types))
	for i := range types {
		types[i].Generator = counting{counted{types[i].Generator, &counts[i]}}
		if types[i].Inbound != nil {
			types[i].Inbound = counting{counted{types[i].Inbound, &counts[i]}}
		}
	}
	return types, func() string {
		var out []string
		for i := range types {
			if n := counts[i].Swap(0); n > 0 {
				out = append(out, fmt.Sprint(types[i].Name, " ", n))
			}
		}
		return strings.Join(out, ", ")
	}
}

// timeout is an EnvoyFilter that gives the clusters of a service a timeout.
func timeout(name, service string, seconds int) string {
	return xdstest.Object("EnvoyFilter", name, fmt.Sprintf("{configPatches: [{applyTo: CLUSTER, match: {cluster: {service: %s}}, patch: {operation: MERGE, value: {connect_timeout: %ds}}}]}", service, seconds))
}

// TestAChangedEnvoyFilterBuildsWhatItMatches: of 50 EnvoyFilters for one service each among many, a
// changed one builds the cluster that it matches. An endpoint costs what it costs without them. Only
// the first EnvoyFilter for a type has all resources of the type built again, and so does the end
// of the last.
func TestAChangedEnvoyFilterBuildsWhatItMatches(t *testing.T) {
	t.Parallel()
	const services, filters = 1000, 50
	host := func(i int) string { return fmt.Sprintf("s%d.example", i) }
	var documents []string
	for i := range services {
		documents = append(documents, xdstest.HTTPService(fmt.Sprint("s", i), host(i), "10.1.0.1"))
	}
	w := xdstest.NewWorld(t, documents...)
	types, built := countedTypes()
	groups := xdstest.NewGroups(types, w.Context)
	var members []xdstest.Member
	for _, n := range []xdstest.Node{{}, {IP: "10.0.0.2"}, {IP: "10.0.0.3", Namespace: "shop"}} {
		m := groups.Join(n.Proxy(t))
		defer m.Close()
		m.Follow()
		members = append(members, m)
	}
	built()
	without := members[0].Versions()
	step := func(want, what string, documents ...string) {
		t.Helper()
		w.Apply(documents...)
		for _, m := range members {
			m.Follow()
		}
		if got := built(); got != want {
			t.Errorf("%s: built %q, want %q", what, got, want)
		}
	}
	moved := func(address string) string { return xdstest.HTTPService("s7", host(7), address) }
	step("EDS 1", "an endpoint", moved("10.1.0.2"))
	var some []string
	for i := range filters {
		some = append(some, timeout(fmt.Sprint("istio-system/f", i), host(i), 3))
	}
	// All clusters, once for all classes, and the names of virtual hosts that none has.
	step(fmt.Sprintf("CDS %d, VHDS 4", services+4), "the first EnvoyFilters", some...)
	step("EDS 1", "an endpoint beside EnvoyFilters", moved("10.1.0.3"))
	step("CDS 1", "a changed EnvoyFilter", timeout("istio-system/f9", host(9), 4))
	step("CDS 2", "an EnvoyFilter for another service", timeout("istio-system/f9", host(109), 4))
	step("", "an EnvoyFilter that matches nothing", timeout("istio-system/none", "none.example", 4))
	step("CDS 1", "an EnvoyFilter of one", timeout("istio-system/none", host(3), 4))
	if got := timeoutOf(t, members[2], host(109)); got != 4 {
		t.Errorf("the cluster of %s has the timeout %d s, want 4", host(109), got)
	}
	notes := members[0].Patches(resource.ClusterType, "outbound|80||"+host(109))
	if len(notes) != 1 || notes[0].Filter.Name != "f9" || notes[0].Err != "" {
		t.Errorf("the patches of the cluster of %s: %v", host(109), notes)
	}
	if origins := members[0].Origins(0, "outbound|80||"+host(109)); len(origins) < 2 || origins[0].Kind.Kind != "EnvoyFilter" {
		t.Errorf("the cluster of %s is made of %v", host(109), origins)
	}
	for i := range filters {
		w.Delete(fmt.Sprintf("envoyfilter/istio-system/f%d", i))
	}
	w.Delete("envoyfilter/istio-system/none")
	w.Apply(moved("10.1.0.1"))
	members[0].Follow()
	if after := members[0].Versions(); !slices.Equal(differing(without, after), nil) {
		t.Errorf("without EnvoyFilters again: %v differ", differing(without, after))
	}
}

func timeoutOf(t *testing.T, m xdstest.Member, host string) int64 {
	t.Helper()
	c := &clusterv3.Cluster{}
	r := m.Set("CDS").Value("outbound|80||" + host)
	if r == nil {
		t.Fatalf("no cluster of %s", host)
	}
	if err := proto.Unmarshal(r.Body.GetValue(), c); err != nil {
		t.Fatal(err)
	}
	return c.GetConnectTimeout().GetSeconds()
}

func differing(a, b map[string]string) []string {
	var out []string
	for name, version := range a {
		if b[name] != version {
			out = append(out, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// TestEnvoyFiltersAddAndRemove: what EnvoyFilters add appears and goes with them, and what they
// removed comes back.
func TestEnvoyFiltersAddAndRemove(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("a", "a.example", "10.1.0.1"))
	groups := xdstest.NewGroups(catalogue.Types(), w.Context)
	nodes := map[string]xdstest.Node{
		"sidecar": {}, "delta": {IP: "10.0.0.2", RouteDelta: true}, "in": {IP: "10.1.0.1", Interception: discovery.InterceptionRedirect, Labels: map[string]string{"app": "a"}},
		"elsewhere": {IP: "10.0.0.4", Namespace: "shop"},
	}
	members := map[string]xdstest.Member{}
	before := map[string]map[string]string{}
	for name, n := range nodes {
		m := groups.Join(n.Proxy(t))
		defer m.Close()
		m.Follow()
		members[name], before[name] = m, m.Versions()
	}
	for _, tc := range []struct {
		name, spec string
		want       map[string][]string // the resources that differ, by proxy
	}{
		{"a cluster is added", "{configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: ADD, value: {name: more, type: STATIC, connect_timeout: 1s}}}]}",
			map[string][]string{"sidecar": {"CDS more"}, "delta": {"CDS more"}, "in": {"CDS more"}}},
		{"a cluster is removed", "{configPatches: [{applyTo: CLUSTER, match: {cluster: {service: a.example}, context: SIDECAR_OUTBOUND}, patch: {operation: REMOVE}}]}",
			map[string][]string{"sidecar": {"CDS outbound|80||a.example", "EDS outbound|80||a.example"}, "delta": {"CDS outbound|80||a.example", "EDS outbound|80||a.example"}, "in": {"CDS outbound|80||a.example", "EDS outbound|80||a.example"}}},
		{"an inbound cluster is changed", "{workloadSelector: {labels: {app: a}}, configPatches: [{applyTo: CLUSTER, match: {cluster: {service: a.example}, context: SIDECAR_INBOUND}, patch: {operation: MERGE, value: {connect_timeout: 9s}}}]}",
			map[string][]string{"in": {"CDS inbound|80||"}}},
		{"a virtual host is added", "{configPatches: [{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {name: '80'}}, patch: {operation: ADD, value: {name: own, domains: [own.example], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}}}]}",
			map[string][]string{"sidecar": {"RDS 80", "VHDS 80/own"}, "delta": {"VHDS 80/own"}, "in": {"RDS 80", "VHDS 80/own"}}},
		{"routes are changed", "{configPatches: [{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {name: 'a.example:80'}}}, patch: {operation: MERGE, value: {request_headers_to_remove: [x-y]}}}]}",
			map[string][]string{"sidecar": {"RDS 80", "VHDS 80/a.example:80"}, "delta": {"VHDS 80/a.example:80"}, "in": {"RDS 80", "VHDS 80/a.example:80"}}},
		{"inbound routes are changed", "{configPatches: [{applyTo: HTTP_ROUTE, match: {context: SIDECAR_INBOUND}, patch: {operation: MERGE, value: {request_headers_to_remove: [x-y]}}}]}",
			map[string][]string{"in": {"LDS virtualInbound"}}},
		{"a filter comes by itself", "{configPatches: [" +
			"{applyTo: HTTP_FILTER, match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}, patch: {operation: INSERT_BEFORE, value: {name: x, config_discovery: {config_source: {ads: {}}, type_urls: [type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer]}}}}," +
			"{applyTo: EXTENSION_CONFIG, patch: {operation: ADD, value: {name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 9}}}}]}",
			map[string][]string{"in": {"ECDS x", "LDS virtualInbound"}}},
		{"nothing that is for others", "{workloadSelector: {labels: {app: none}}, configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}", nil},
	} {
		check := func(what string, want map[string][]string) {
			t.Helper()
			for name, m := range members {
				m.Follow()
				if got := differing(before[name], m.Versions()); !slices.Equal(got, want[name]) {
					t.Errorf("%s, %s: %q differ for the proxy %s, want %q", tc.name, what, got, name, want[name])
				}
				walked, err := m.Walked()
				if err != nil {
					t.Errorf("%s, %s: %v", tc.name, what, err)
				}
				if odd := differing(walked, m.Versions()); len(odd) > 0 {
					t.Errorf("%s, %s: a walk makes others of %q for the proxy %s", tc.name, what, odd, name)
				}
			}
		}
		w.Apply(xdstest.Object("EnvoyFilter", "f", tc.spec))
		check("with the EnvoyFilter", tc.want)
		w.Delete("envoyfilter/default/f")
		check("without it", nil)
	}
}
