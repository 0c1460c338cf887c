package desired_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestALocalityCostsWhatDependsOnIt: one service of two hundred prefers localities. The
// first proxy of a second locality then costs little compared with the first of a
// namespace, and has the same resources as if it were alone.
func TestALocalityCostsWhatDependsOnIt(t *testing.T) {
	world := xdstest.NewWorld(t)
	var documents []string
	for i := range 200 {
		documents = append(documents, xdstest.HTTPService(fmt.Sprint("s", i), fmt.Sprintf("s%d.example", i), "10.1.0.1", "10.1.0.2"))
	}
	documents = append(documents, `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: s7, namespace: shop}
spec: {host: s7.example, trafficPolicy: {outlierDetection: {interval: 1s}}}
`)
	world.Apply(strings.Join(documents, "---\n"))
	groups := xdstest.NewGroups(catalogue.Types(), world.Context)
	// allocations returns the allocations for a proxy that joins, advances and leaves.
	allocations := func(namespace, locality string) float64 {
		proxy := xdstest.Node{Type: discovery.Sidecar, Namespace: namespace, IP: "10.0.0.1", Locality: locality}.Proxy(t)
		return testing.AllocsPerRun(5, func() {
			m := groups.Join(proxy)
			m.Follow()
			m.Close()
		})
	}
	first := groups.Join(xdstest.Node{Type: discovery.Sidecar, Namespace: "shop", IP: "10.0.0.2", Locality: "r/z"}.Proxy(t))
	first.Follow()
	defer first.Close()
	namespace, locality := allocations("edge", "r/z"), allocations("shop", "r/y")
	t.Logf("%.0f allocations for a namespace, %.0f for a locality", namespace, locality)
	if locality > namespace/4 {
		t.Errorf("a locality costs %.0f allocations, a namespace %.0f", locality, namespace)
	}
}
