package listener_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestHTTPProxyPort: a sidecar is an HTTP proxy on the port in its own metadata, else on
// the mesh's.
func TestHTTPProxyPort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node xdstest.Node
		mesh string
		port int // 0 for none
	}{
		"of nobody":                     {},
		"of the mesh":                   {mesh: "proxyHttpPort: 3128", port: 3128},
		"its own":                       {node: xdstest.Node{HTTPProxyPort: "3129"}, port: 3129},
		"its own, not the mesh's":       {node: xdstest.Node{HTTPProxyPort: "3129"}, mesh: "proxyHttpPort: 3128", port: 3129},
		"none, though the mesh has one": {node: xdstest.Node{HTTPProxyPort: "0"}, mesh: "proxyHttpPort: 3128"},
		"of a gateway":                  {node: xdstest.Node{Type: discovery.Router, HTTPProxyPort: "3129"}, mesh: "proxyHttpPort: 3128"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, xdstest.HTTPService("web", "web.example.com", "10.1.0.1"))
			w.SetMesh(c.mesh)
			p := w.Simulate(c.node)
			for _, port := range []int{3128, 3129} {
				want := "no listener"
				if port == c.port {
					want = "outbound|80||web.example.com"
				}
				if got := p.Run(simulate.Request{Port: port, Host: "web.example.com"}).String(); got != want {
					t.Errorf("at port %d: got %s, want %s", port, got, want)
				}
			}
			if got := slices.Contains(p.Routes(), "http_proxy"); got != (c.port != 0) {
				t.Errorf("it has routes: %t", got)
			}
		})
	}
}
