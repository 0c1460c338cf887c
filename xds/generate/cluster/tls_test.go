package cluster_test

import (
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
