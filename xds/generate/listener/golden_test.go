package listener_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGolden makes the outbound listeners of each mesh in testdata, *.in.yaml, which are
// those in *.out.yaml. A file whose name begins with captured is for a sidecar that
// captures traffic, one with gateway is for a gateway, and one with inbound is of inbound
// listeners.
func TestGolden(t *testing.T) {
	t.Parallel()
	xdstest.GoldenMeshes(t, func(t *testing.T, name string, w *xdstest.World, n xdstest.Node) {
		switch {
		case strings.HasPrefix(name, "captured"):
			n.Interception = discovery.InterceptionRedirect
		case strings.HasPrefix(name, "gateway"):
			n.Type = discovery.Router
		}
		var g generate.Generator = listener.Generator{}
		if strings.HasPrefix(name, "inbound") {
			g = listener.Inbound{}
		}
		w.Golden(t, name+".out.yaml", "", n, g)
	})
}
