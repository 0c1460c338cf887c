package virtualhost_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGolden builds the virtual hosts of each mesh testdata/*.in.yaml for a sidecar, and
// for a gateway with the label istio: gateway. It compares them with *.sidecar.yaml and
// *.router.yaml.
func TestGolden(t *testing.T) {
	t.Parallel()
	xdstest.GoldenMeshes(t, func(t *testing.T, name string, w *xdstest.World, _ xdstest.Node) {
		for _, n := range []xdstest.Node{
			{Labels: map[string]string{"app": "client"}},
			{Type: discovery.Router, Labels: map[string]string{"istio": "gateway"}},
		} {
			w.Golden(t, name+"."+string(n.Proxy(t).Type)+".yaml", "", n, virtualhost.Generator{})
		}
	})
}
