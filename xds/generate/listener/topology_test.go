package listener_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestProxyProtocol: if the gateway topology has the PROXY protocol, every listener of a
// gateway reads its header first. Sidecars do not.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	const servers = "{selector: {app: edge}, servers: [" +
		"{port: {number: 8080, name: h, protocol: HTTP}, hosts: ['*']}, {port: {number: 9000, name: t, protocol: TCP}, hosts: ['*']}]}"
	w := xdstest.NewWorld(t, at("a", http5432), xdstest.Object("Gateway", "g", servers), routes("v", "hosts: [a.example.com], gateways: [g], tcp: [{route: ["+to("a")+"]}]"))
	edge := xdstest.Node{Type: discovery.Router, Labels: map[string]string{"app": "edge"}}
	for _, document := range []string{"", "defaultConfig: {gatewayTopology: {proxyProtocol: {}}}"} {
		w.SetMesh(document)
		for kind, c := range map[string]struct {
			node  xdstest.Node
			least int
			want  bool
		}{"gateway": {edge, 2, document != ""}, "sidecar": {xdstest.Node{}, 1, false}} {
			built := w.Build(c.node, listener.Generator{})
			if len(built) < c.least {
				t.Errorf("%q: %s: %d listeners", document, kind, len(built))
			}
			for _, r := range built {
				l := &listenerv3.Listener{}
				if err := r.Body.UnmarshalTo(l); err != nil {
					t.Fatal(err)
				}
				filters := l.GetListenerFilters()
				if got := len(filters) > 0 && filters[0].GetName() == envoy.ProxyProtocolName; got != c.want {
					t.Errorf("%q: %s: %s: reads the header: %t, want %t", document, kind, r.Name, got, c.want)
				}
			}
		}
	}
}
