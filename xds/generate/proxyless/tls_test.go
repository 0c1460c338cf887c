package proxyless_test

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/portolan-mesh/portolan/xds/generate/proxyless"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestNoPlaintextInsteadOfTLS: a client has no endpoints for a service that requires TLS which it
// cannot speak.
func TestNoPlaintextInsteadOfTLS(t *testing.T) {
	t.Parallel()
	hosts := object("ServiceEntry", "web", `{hosts: [web.example.com], resolution: DNS, ports: [{number: 80, name: grpc, protocol: GRPC}], endpoints: [{address: b.example.com}]}`)
	certified := client
	certified.Certified = true
	for _, entry := range []string{web, hosts} {
		for _, c := range []struct {
			tls    string
			client xdstest.Node
			sends  bool
		}{
			{"{mode: DISABLE}", client, true}, {"{mode: SIMPLE}", client, false}, {"{mode: ISTIO_MUTUAL}", client, false},
			{"{mode: SIMPLE}", certified, false}, {"{mode: ISTIO_MUTUAL}", certified, true},
		} {
			rule := object("DestinationRule", "web", "{host: web.example.com, trafficPolicy: {tls: "+c.tls+"}}")
			way, endpoints := waysTo(t, c.client, entry, rule)
			if c.sends != (endpoints > 0) || c.sends && (way != "plaintext") != (c.tls == "{mode: ISTIO_MUTUAL}") {
				t.Errorf("with %s: %s to %d endpoints", c.tls, way, endpoints)
			}
		}
	}
}

// waysTo returns how a client calls a service, and how many endpoints it has.
func waysTo(t *testing.T, n xdstest.Node, documents ...string) (way string, endpoints int) {
	t.Helper()
	const name = "outbound|80||web.example.com"
	c := built[*clusterv3.Cluster](t, proxyless.Clusters{}, n, documents...)[name]
	a := built[*endpointv3.ClusterLoadAssignment](t, proxyless.Endpoints{}, n, documents...)[name]
	for _, l := range append(c.GetLoadAssignment().GetEndpoints(), a.GetEndpoints()...) {
		endpoints += len(l.GetLbEndpoints())
	}
	if c.GetTransportSocket() == nil {
		return "plaintext", endpoints
	}
	var tls tlsv3.UpstreamTlsContext
	if err := c.GetTransportSocket().GetTypedConfig().UnmarshalTo(&tls); err != nil {
		t.Fatal(err)
	}
	validation := tls.GetCommonTlsContext().GetValidationContext()
	if tls.GetCommonTlsContext().GetTlsCertificateProviderInstance().GetInstanceName() != "default" || validation.GetCaCertificateProviderInstance().GetInstanceName() != "default" {
		t.Errorf("the certificates come from elsewhere: %v", &tls)
	}
	//lint:ignore SA1019 gRPC reads this field alone.
	for _, m := range validation.GetMatchSubjectAltNames() {
		way = strings.TrimSpace(way + " " + m.GetExact() + m.GetPrefix())
	}
	return way, endpoints
}

// TestAutomaticTLS: a client has one way to all endpoints of a cluster. It encrypts if all take it,
// or if one takes nothing else; then it leaves the others out.
func TestAutomaticTLS(t *testing.T) {
	t.Parallel()
	certified := client
	certified.Certified = true
	entry := func(resolution, protocol string, endpoints ...string) string {
		return object("ServiceEntry", "web", "{hosts: [web.example.com], resolution: "+resolution+", location: MESH_INTERNAL, ports: [{number: 80, name: grpc, protocol: "+protocol+"}], endpoints: ["+strings.Join(endpoints, ", ")+"]}")
	}
	service := func(protocol string, endpoints ...string) string { return entry("STATIC", protocol, endpoints...) }
	hosts := func(endpoints ...string) string { return entry("DNS", "GRPC", endpoints...) }
	const (
		takes    = "{address: 10.1.0.1, serviceAccount: web}"
		labelled = "{address: 10.1.0.2, labels: {app: strict, security.istio.io/tlsMode: istio}}"
		plain    = "{address: 10.1.0.3, labels: {security.istio.io/tlsMode: disabled}}"
		// Endpoints that the client resolves: of these it has the first alone.
		takesHost    = "{address: a.example.com, serviceAccount: web}"
		labelledHost = "{address: b.example.com, labels: {app: strict, security.istio.io/tlsMode: istio}}"
		plainHost    = "{address: c.example.com, labels: {security.istio.io/tlsMode: disabled}}"
		account      = "spiffe://cluster.local/ns/default/sa/web"
	)
	strict := "{selector: {matchLabels: {app: strict}}, mtls: {mode: STRICT}}"
	for name, c := range map[string]struct {
		client    xdstest.Node
		documents []string
		way       string
		endpoints int
	}{
		"all take it":                        {certified, []string{service("GRPC", takes)}, account, 1},
		"no certificate":                     {client, []string{service("GRPC", takes)}, "plaintext", 1},
		"no account":                         {certified, []string{service("GRPC", labelled)}, "spiffe://cluster.local/", 1},
		"one takes plaintext":                {certified, []string{service("GRPC", takes, plain)}, "plaintext", 2},
		"one takes plaintext, one TLS alone": {certified, []string{service("GRPC", takes, plain, labelled), mode(strict)}, account, 2},
		"turned off":                         {certified, []string{service("GRPC", takes), mode("{mtls: {mode: DISABLE}}")}, "plaintext", 1},
		"bytes that may be either":           {certified, []string{service("TCP", takes)}, "plaintext", 1},
		"bytes over TLS alone":               {certified, []string{service("TCP", takes), mode("{mtls: {mode: STRICT}}")}, account, 1},
		"a rule says no":                     {certified, []string{service("GRPC", takes), object("DestinationRule", "web", "{host: web.example.com, trafficPolicy: {tls: {mode: DISABLE}}}")}, "plaintext", 1},
		"a host takes it":                    {certified, []string{hosts(takesHost)}, account, 1},
		"a host with the label":              {certified, []string{hosts(labelledHost)}, "spiffe://cluster.local/", 1},
		"a host takes none":                  {certified, []string{hosts(plainHost)}, "plaintext", 1},
		"a host, turned off":                 {certified, []string{hosts(takesHost), mode("{mtls: {mode: DISABLE}}")}, "plaintext", 1},
		"the first host takes it":            {certified, []string{hosts(takesHost, plainHost)}, account, 1},
		"the first host takes plaintext":     {certified, []string{hosts(plainHost, takesHost)}, "plaintext", 1},
		"a later host takes TLS alone":       {certified, []string{hosts(plainHost, labelledHost), mode(strict)}, "spiffe://cluster.local/", 1},
		"the service itself is the host":     {certified, []string{hosts()}, "plaintext", 1},
	} {
		if way, endpoints := waysTo(t, c.client, c.documents...); way != c.way || endpoints != c.endpoints {
			t.Errorf("%s: %q to %d endpoints, want %q to %d", name, way, endpoints, c.way, c.endpoints)
		}
	}
}

// mode is a PeerAuthentication that all follow.
func mode(spec string) string {
	return object("PeerAuthentication", "default", spec)
}

// TestServerModes: a server takes connections in one way.
func TestServerModes(t *testing.T) {
	t.Parallel()
	entry := func(more string) string {
		return object("ServiceEntry", "web", "{hosts: [web.example.com], resolution: STATIC, ports: [{number: 80, name: grpc, protocol: GRPC, targetPort: 9001}], endpoints: [{address: 10.0.0.1"+more+"}]}")
	}
	own := server("0.0.0.0:9001")
	labelled := own
	labelled.Labels = map[string]string{"security.istio.io/tlsMode": "istio"}
	bare := own
	bare.Certified = false
	for name, c := range map[string]struct {
		node      xdstest.Node
		documents []string
		want      string
	}{
		"unknown to the mesh":                   {own, nil, "plaintext"},
		"unknown, and labelled":                 {labelled, nil, "mutual TLS"},
		"an endpoint that takes TLS":            {own, []string{entry(", serviceAccount: web")}, "mutual TLS"},
		"an endpoint that takes plaintext":      {own, []string{entry("")}, "plaintext"},
		"STRICT":                                {own, []string{entry(""), mode("{mtls: {mode: STRICT}}")}, "mutual TLS"},
		"DISABLE":                               {labelled, []string{entry(", serviceAccount: web"), mode("{mtls: {mode: DISABLE}}")}, "plaintext"},
		"no certificate":                        {bare, []string{entry(", serviceAccount: web")}, "plaintext"},
		"no certificate, where TLS is demanded": {bare, []string{entry(""), mode("{mtls: {mode: STRICT}}")}, "nothing"},
		"of another port":                       {own, []string{entry(", labels: {app: web}"), mode("{selector: {matchLabels: {app: web}}, portLevelMtls: {9002: {mode: STRICT}}}")}, "plaintext"},
	} {
		l := built[*listenerv3.Listener](t, proxyless.Servers{}, c.node, c.documents...)[inbound+"0.0.0.0:9001"]
		chain, got := l.GetFilterChains()[0], "plaintext"
		filters := len(serverManager(t, l).GetHttpFilters())
		switch {
		case chain.GetFilterChainMatch() != nil:
			got = "nothing"
		case chain.GetTransportSocket() != nil && filters == 2:
			got = "mutual TLS"
		case filters != 1:
			got = fmt.Sprintf("%d filters", filters)
		}
		if got != c.want {
			t.Errorf("%s: it takes %s, want %s", name, got, c.want)
		}
	}
}
