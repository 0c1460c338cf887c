package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// encrypted writes a rule of a.example with TLS settings, and with more fields.
func encrypted(tls, more string) string {
	return xdstest.Object("DestinationRule", "shop/a", "{host: a.example, trafficPolicy: {tls: "+tls+"}"+more+"}")
}

// built returns the cluster of port 80 of a.example, and its needs.
func built(t *testing.T, w *xdstest.World, n xdstest.Node) (*clusterv3.Cluster, []resource.Need) {
	t.Helper()
	name := names.Cluster(names.Outbound, 80, "", "a.example")
	m, needs, err := cluster.Generator{}.Build(w.View(n), name)
	if err != nil || m == nil {
		t.Fatalf("%s is %v, %v", name, m, err)
	}
	return m.(*clusterv3.Cluster), needs
}

// TestNothingIsSentWithoutItsSecret: a cluster whose TLS lacks a secret has no endpoints,
// whatever its type, and gets them with the secret.
func TestNothingIsSentWithoutItsSecret(t *testing.T) {
	t.Parallel()
	edge := xdstest.Node{Type: discovery.Router, Namespace: "shop"}
	selected := ", workloadSelector: {matchLabels: {app: a}}"
	for name, test := range map[string]struct {
		node  xdstest.Node
		entry string
		tls   string
		more  string
		needs []string // once the secret is there; none where it does not help
	}{
		"gateway":        {node: edge, tls: "{mode: MUTUAL, credentialName: key}", needs: []string{"kubernetes://key", "kubernetes://key-cacert"}},
		"gateway, DNS":   {node: edge, entry: "resolution: DNS, endpoints: [{address: b.example}]", tls: "{mode: SIMPLE, credentialName: key}", needs: []string{"kubernetes://key-cacert"}},
		"gateway, hosts": {node: edge, entry: "resolution: DNS_ROUND_ROBIN, endpoints: [{address: b.example}]", tls: "{mode: SIMPLE, credentialName: key}", needs: []string{"kubernetes://key-cacert"}},
		"sidecar":        {node: xdstest.Node{Namespace: "shop"}, tls: "{mode: SIMPLE, credentialName: key}"},
		"selected sidecar": {
			node: xdstest.Node{Namespace: "shop", Labels: map[string]string{"app": "a"}}, tls: "{mode: MUTUAL, credentialName: key}", more: selected,
			needs: []string{"kubernetes://key", "kubernetes://key-cacert"},
		},
		"original destination": {
			node: xdstest.Node{Namespace: "shop", Interception: discovery.InterceptionRedirect, Labels: map[string]string{"app": "a"}}, entry: "resolution: NONE",
			tls: "{mode: SIMPLE, credentialName: key}", more: selected, needs: []string{"kubernetes://key-cacert"},
		},
		"another namespace":  {node: xdstest.Node{Type: discovery.Router, Namespace: "edge"}, tls: "{mode: SIMPLE, credentialName: key}"},
		"no own certificate": {node: edge, tls: "{mode: ISTIO_MUTUAL}"},
		"own certificate": {
			node: xdstest.Node{Type: discovery.Router, Namespace: "shop", Certified: true}, tls: "{mode: ISTIO_MUTUAL}", needs: []string{"default", "ROOTCA"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entry := test.entry
			if entry == "" {
				entry = "resolution: STATIC, endpoints: [{address: 10.0.0.9}]"
			}
			w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "shop/a", "{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], "+entry+"}"),
				encrypted(test.tls, test.more))
			closed := func() {
				t.Helper()
				if c, needs := built(t, w, test.node); c.GetType() != clusterv3.Cluster_STATIC || c.GetClusterType() != nil || c.GetLoadAssignment() != nil || c.GetTransportSocket() != nil || len(needs) > 0 {
					t.Fatalf("it needs %v and is %v", needs, c)
				}
			}
			if !test.node.Certified {
				closed()
			}
			w.PutSecret("shop/key", secret.TLSCert, secret.TLSKey, secret.TLSAuthority)
			if len(test.needs) == 0 {
				closed()
				return
			}
			c, needs := built(t, w, test.node)
			var secrets []string
			for _, n := range needs {
				if n.TypeURL == resource.SecretType {
					secrets = append(secrets, n.Name)
				}
			}
			if !slices.Equal(secrets, test.needs) || !c.GetTransportSocket().GetTypedConfig().MessageIs(&tlsv3.UpstreamTlsContext{}) || c.GetType() == clusterv3.Cluster_STATIC && c.GetClusterType() == nil {
				t.Errorf("with the secret it needs %v and is %v", needs, c)
			}
			if !test.node.Certified {
				w.PutSecret("shop/key")
				closed()
			}
		})
	}
}

// TestHostsThatTakeMutualTLS: connections to endpoints that the proxy resolves are encrypted without
// a rule if the endpoint takes that, by its label or account.
func TestHostsThatTakeMutualTLS(t *testing.T) {
	t.Parallel()
	const (
		takes    = "{address: one.example, serviceAccount: a}"
		labelled = "{address: two.example, labels: {security.istio.io/tlsMode: istio}}"
		plain    = "{address: three.example, labels: {security.istio.io/tlsMode: disabled}}"
	)
	disable := xdstest.Object("PeerAuthentication", "shop/default", "{mtls: {mode: DISABLE}}")
	hosts := "resolution: DNS, endpoints: [" + takes + ", " + labelled + ", " + plain + "]"
	passthrough := xdstest.Object("DestinationRule", "shop/a", "{host: a.example, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}}")
	for name, test := range map[string]struct {
		entry string
		more  []string
		match []string // the endpoints that are encrypted
		all   bool     // one socket for all
	}{
		"DNS":                        {entry: hosts, match: []string{"one.example:80", "two.example:80"}},
		"DNS, one of them":           {entry: "resolution: DNS_ROUND_ROBIN, endpoints: [" + takes + "]", match: []string{"one.example:80"}},
		"turned off":                 {entry: hosts, more: []string{disable}},
		"the host itself":            {entry: "resolution: DNS"},
		"to where the client aims":   {entry: "resolution: DNS, endpoints: [" + takes + ", " + labelled + "]", more: []string{passthrough}, all: true},
		"the same, and one does not": {entry: hosts, more: []string{passthrough}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append(test.more, xdstest.Object("ServiceEntry", "shop/a", "{hosts: [a.example], location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], "+test.entry+"}"))...)
			v := w.View(xdstest.Node{Namespace: "shop", Certified: true, Interception: discovery.InterceptionRedirect})
			m, _, err := cluster.Generator{}.Build(v, names.Cluster(names.Outbound, 80, "", "a.example"))
			if err != nil {
				t.Fatal(err)
			}
			c := m.(*clusterv3.Cluster)
			if got := c.GetTransportSocket() != nil; got != test.all {
				t.Errorf("one socket for all: %t, want %t", got, test.all)
			}
			var got []string
			for _, l := range c.GetLoadAssignment().GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					if e.GetMetadata().GetFilterMetadata()["envoy.transport_socket_match"].GetFields()["tlsMode"].GetStringValue() == "istio" {
						a := e.GetEndpoint().GetAddress().GetSocketAddress()
						got = append(got, fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue()))
					}
				}
			}
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(test.match))) || !test.all && len(test.match) > 0 && len(c.GetTransportSocketMatches()) != 1 {
				t.Errorf("encrypted: %v by %d sockets, want %v", got, len(c.GetTransportSocketMatches()), test.match)
			}
			o, ok := cluster.Find(v, c.GetName())
			if told := slices.Sorted(maps.Keys(o.MutualEndpoints(v))); !ok || !slices.Equal(told, got) {
				t.Errorf("MutualEndpoints: %v, want %v", told, got)
			}
		})
	}
}

// TestWhatPassesTLSBeginsNone: a rule's TLS applies only to plaintext, not to TLS that is
// passed on.
func TestWhatPassesTLSBeginsNone(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "shop/a", "{hosts: [a.example], location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.9}]}"),
		encrypted("{mode: MUTUAL, credentialName: key}", ""),
		xdstest.Object("Gateway", "shop/g", "{selector: {app: edge}, servers: [{port: {number: 15443, name: p, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ['*.example']}]}"))
	edge := xdstest.Node{Type: discovery.Router, Namespace: "shop", Labels: map[string]string{"app": "edge"}}
	name := names.SNICluster(80, "", "a.example")
	m, needs, err := cluster.Generator{}.Build(w.View(edge), name)
	c, ok := m.(*clusterv3.Cluster)
	if err != nil || !ok {
		t.Fatalf("%s is %v, %v", name, m, err)
	}
	want := []resource.Need{{TypeURL: resource.EndpointType, Name: name, Kind: resource.Covered}}
	if c.GetTransportSocket() != nil || c.GetType() != clusterv3.Cluster_EDS || !slices.Equal(needs, want) {
		t.Errorf("it needs %v and is %v", needs, c)
	}
	if c, _ := built(t, w, edge); c.GetType() != clusterv3.Cluster_STATIC {
		t.Errorf("beside it is %v", c)
	}
}
