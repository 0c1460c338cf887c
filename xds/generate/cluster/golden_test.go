package cluster_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGoldenMeshes builds the outbound clusters of each mesh testdata/*.in.yaml and
// compares them with *.out.yaml.
func TestGoldenMeshes(t *testing.T) {
	t.Parallel()
	xdstest.GoldenMeshes(t, func(t *testing.T, name string, w *xdstest.World, n xdstest.Node) {
		w.Golden(t, name+".out.yaml", "outbound|", n, cluster.Generator{})
	})
}
