package probe_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/names/probe"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func group(name, probe string) string {
	return xdstest.Object("WorkloadGroup", name, "{template: {serviceAccount: web}, probe: "+probe+"}")
}

// entry is a WorkloadEntry with a probe.
func entry(name, spec, probe string) string {
	namespace, short, _ := strings.Cut(name, "/")
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: %s, namespace: %s, annotations: {portolan.io/probe: %q}}\nspec: %s\n", short, namespace, probe, spec)
}

// read returns the probe of a member, nil for none.
func read(t *testing.T, m xdstest.Member) *probe.Probe {
	t.Helper()
	m.Follow()
	set := m.Set("PROBE")
	r := set.Value(probe.Name)
	if r == nil {
		if set.Len() != 0 {
			t.Errorf("it has %d resources, and none is the probe", set.Len())
		}
		return nil
	}
	out := &probe.Probe{}
	if err := proto.Unmarshal(r.Body.GetValue(), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func port(p *probe.Probe) uint32 {
	return p.GetTcpSocket().GetPort() + p.GetHttpGet().GetPort() + p.GetGrpc().GetPort()
}

// TestWhoHasAProbe: a proxy of any type that names a group with a probe, or whose own
// WorkloadEntry names one, has it, and follows it.
func TestWhoHasAProbe(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		group("shop/web", "{tcpSocket: {port: 1}}"), group("bank/web", "{tcpSocket: {port: 2}}"),
		xdstest.Object("WorkloadGroup", "shop/plain", "{template: {}}"),
		entry("shop/a", "{address: 10.0.0.1, serviceAccount: web}", "{tcpSocket: {port: 3}}"),
		entry("shop/b", "{address: 10.0.0.1, serviceAccount: api}", "{tcpSocket: {port: 4}}"),
		entry("shop/far", "{address: 10.0.0.2, network: far}", "{tcpSocket: {port: 5}}"),
		entry("bank/other", "{address: 10.0.0.3}", "{tcpSocket: {port: 6}}"),
		xdstest.Object("WorkloadEntry", "shop/plain", "{address: 10.0.0.4}"))
	all := xdstest.NewGroups(catalogue.Types(), w.Context)
	for _, c := range []struct {
		what string
		node xdstest.Node
		want uint32 // the port; 0 for no probe
	}{
		{"of a group", xdstest.Node{Group: "web", IP: "10.0.0.9"}, 1},
		{"of a group of another namespace", xdstest.Node{Group: "web", Namespace: "bank", IP: "10.0.0.9"}, 2},
		{"of a group, also at the address of an entry", xdstest.Node{Group: "web", IP: "10.0.0.1"}, 1},
		{"of a group without a probe", xdstest.Node{Group: "plain", IP: "10.0.0.1"}, 0},
		{"of a group that is not there", xdstest.Node{Group: "none", IP: "10.0.0.1"}, 0},
		{"a gateway of a group", xdstest.Node{Group: "web", IP: "10.0.0.9", Type: discovery.Router}, 1},
		{"a gRPC client of a group", xdstest.Node{Group: "web", IP: "10.0.0.9", Type: discovery.Proxyless}, 1},
		{"of the first entry at its address", xdstest.Node{IP: "10.0.0.1"}, 3},
		{"at its second address", xdstest.Node{IP: "10.0.0.9", MoreIPs: []string{"10.0.0.1"}}, 3},
		{"of the entry of its account", xdstest.Node{IP: "10.0.0.1", Identity: "spiffe://cluster.local/ns/shop/sa/api"}, 4},
		{"of no entry of its account", xdstest.Node{IP: "10.0.0.1", Identity: "spiffe://cluster.local/ns/shop/sa/db"}, 0},
		{"of another network", xdstest.Node{IP: "10.0.0.2"}, 0},
		{"of another namespace", xdstest.Node{IP: "10.0.0.3"}, 0},
		{"of an entry without a probe", xdstest.Node{IP: "10.0.0.4"}, 0},
	} {
		if c.node.Namespace == "" {
			c.node.Namespace = "shop"
		}
		m := all.Join(c.node.Proxy(t))
		t.Cleanup(m.Close)
		if got := port(read(t, m)); got != c.want {
			t.Errorf("%s: it has the probe of port %d, want %d", c.what, got, c.want)
		}
	}
}

// TestAProbeThatChanges: the proxies of a group follow its probe at once, and no others.
func TestAProbeThatChanges(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, group("shop/web", "{tcpSocket: {port: 1}}"), entry("shop/a", "{address: 10.0.0.2}", "{tcpSocket: {port: 5}}"))
	all := xdstest.NewGroups(catalogue.Types(), w.Context)
	of, own := all.Join(xdstest.Node{Group: "web", Namespace: "shop"}.Proxy(t)), all.Join(xdstest.Node{IP: "10.0.0.2", Namespace: "shop"}.Proxy(t))
	t.Cleanup(of.Close)
	t.Cleanup(own.Close)
	check := func(what string, wantOf, wantOwn uint32) {
		t.Helper()
		if a, b := port(read(t, of)), port(read(t, own)); a != wantOf || b != wantOwn {
			t.Errorf("%s: %d and %d, want %d and %d", what, a, b, wantOf, wantOwn)
		}
	}
	check("at first", 1, 5)
	before := own.Set("PROBE").Value(probe.Name)
	w.Apply(group("shop/web", "{grpc: {port: 2}}"))
	check("after an edit", 2, 5)
	if own.Set("PROBE").Value(probe.Name) != before {
		t.Error("the probe of an entry was built again with that of a group")
	}
	if got := of.Origins(len(catalogue.Types())-1, probe.Name); len(got) != 1 || got[0].Name != "web" {
		t.Errorf("the resource comes from %v", got)
	}
	w.Apply(xdstest.Object("WorkloadGroup", "shop/web", "{template: {}}"))
	check("without a probe", 0, 5)
	w.Apply(group("shop/web", "{httpGet: {port: 3}}"), entry("shop/a", "{address: 10.0.0.2}", "{tcpSocket: {port: 6}}"))
	check("with another", 3, 6)
	w.Apply(entry("shop/a", "{address: 10.0.0.7}", "{tcpSocket: {port: 6}}"))
	check("at another address", 3, 0)
	w.Delete("workloadgroup/shop/web")
	check("without the group", 0, 0)
}

// TestTheFieldsOfAProbe: each method and each default is in the resource.
func TestTheFieldsOfAProbe(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"{httpGet: {port: 80}}": `{"initialDelay":"0s","period":"10s","timeout":"1s","successThreshold":1,"failureThreshold":1,"httpGet":{"port":80,"path":"/"}}`,
		"{initialDelaySeconds: 5, periodSeconds: 2, timeoutSeconds: 3, successThreshold: 4, failureThreshold: 6, httpGet: {port: 443, host: a.example, path: /r, scheme: HTTPS, httpHeaders: [{name: X, value: z}]}}": `{"initialDelay":"5s","period":"2s","timeout":"3s","successThreshold":4,"failureThreshold":6,"httpGet":{"host":"a.example","port":443,"path":"/r","tls":true,"headers":[{"name":"X","value":"z"}]}}`,
		"{tcpSocket: {host: b.example, port: 5}}":   `{"initialDelay":"0s","period":"10s","timeout":"1s","successThreshold":1,"failureThreshold":1,"tcpSocket":{"host":"b.example","port":5}}`,
		"{exec: {command: [test, -e, /run/ready]}}": `{"initialDelay":"0s","period":"10s","timeout":"1s","successThreshold":1,"failureThreshold":1,"exec":{"command":["test","-e","/run/ready"]}}`,
		"{grpc: {port: 7, service: s}}":             `{"initialDelay":"0s","period":"10s","timeout":"1s","successThreshold":1,"failureThreshold":1,"grpc":{"port":7,"service":"s"}}`,
	} {
		w := xdstest.NewWorld(t, group("shop/web", spec))
		m := xdstest.NewGroups(catalogue.Types(), w.Context).Join(xdstest.Node{Group: "web", Namespace: "shop"}.Proxy(t))
		t.Cleanup(m.Close)
		got, expect := read(t, m), &probe.Probe{}
		if err := protojson.Unmarshal([]byte(want), expect); err != nil {
			t.Fatal(err)
		}
		if expect.Origin = "workloadgroup/shop/web"; !proto.Equal(got, expect) {
			t.Errorf("%s: %v", spec, got)
		}
	}
}
