package endpoint_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/generate/endpoint"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGolden builds the endpoints of each mesh testdata/*.in.yaml and compares them with
// *.out.yaml.
func TestGolden(t *testing.T) {
	t.Parallel()
	xdstest.GoldenMeshes(t, func(t *testing.T, name string, w *xdstest.World, n xdstest.Node) {
		w.Golden(t, name+".out.yaml", "", n, endpoint.Generator{})
	})
}
