package listener_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGolden builds the listeners of each mesh testdata/*.in.yaml and compares them with
// *.out.yaml. They are outbound listeners of a sidecar, unless the file's name begins
// with captured (a sidecar that captures traffic), gateway (a gateway) or inbound
// (inbound listeners).
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
