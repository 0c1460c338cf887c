package generate_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestSoakWhatIsAcceptedIsBuilt: whatever validation accepts can be built for proxies of
// all sorts, without an error, a panic or a breach of the API's rules.
func TestSoakWhatIsAcceptedIsBuilt(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	seed, end := uint64(1), time.Now()
	if long := os.Getenv("PORTOLAN_SOAK"); long != "" {
		d, err := time.ParseDuration(long)
		if err != nil {
			t.Fatalf("PORTOLAN_SOAK: %v", err)
		}
		seed, end = uint64(end.UnixNano()), end.Add(d)
	}
	t.Logf("seed %d", seed)
	drawer := schematest.NewDrawer(seed)
	for first := true; first || time.Now().Before(end) && !t.Failed(); first = false {
		batch := drawer.Batch(100)
		if faults := faultsOf(t, batch); len(faults) > 0 {
			objects, fault := reduced(t, batch, faults[0])
			t.Error(fault)
			for _, o := range objects {
				t.Log(schematest.Document(o))
			}
		}
	}
}

// reduced returns a smaller set of objects that still has a fault.
func reduced(t *testing.T, objects []*config.Config, fault string) ([]*config.Config, string) {
	for i := 0; i < len(objects) && len(objects) > 1; {
		rest := slices.Delete(slices.Clone(objects), i, i+1)
		if faults := faultsOf(t, rest); len(faults) > 0 {
			objects, fault = rest, faults[0]
		} else {
			i++
		}
	}
	for i := range objects {
		for simpler := range schematest.Simplify(objects[i]) {
			rest := slices.Clone(objects)
			rest[i] = simpler
			if faults := faultsOf(t, rest); len(faults) > 0 {
				objects, fault = rest, faults[0]
			}
		}
	}
	return objects, fault
}

// faultsOf builds everything that proxies get from the objects.
func faultsOf(t *testing.T, objects []*config.Config) (faults []string) {
	clones := make([]*config.Config, len(objects))
	for i, o := range objects {
		clones[i] = o.Clone()
	}
	w := xdstest.NewWorld(t)
	w.Put(clones...)
	for _, n := range []xdstest.Node{
		{Type: discovery.Router, Namespace: schematest.Namespace, IP: "10.0.0.3", MoreIPs: []string{"fd00::3"}, Labels: map[string]string{"app": "edge"}, RouteDelta: true},
		{Type: discovery.Sidecar, Namespace: schematest.Namespace, Labels: map[string]string{"app": "odd"}, DNSCapture: true, SelfDiscovery: true},
		{Type: discovery.Sidecar, Namespace: schematest.Namespace, Interception: discovery.InterceptionRedirect, Labels: map[string]string{"app": "scoped"}},
		{Type: discovery.Sidecar, Namespace: "else", IP: "fd00::2", Interception: discovery.InterceptionTproxy, RouteDelta: true},
		{Type: discovery.Proxyless, Namespace: schematest.Namespace},
	} {
		view := w.View(n)
		for _, typ := range catalogue.Types() {
			generators := []generate.Generator{typ.For(n.Type)}
			if own := typ.Own(n.Proxy(t)); own != nil {
				generators = append(generators, own)
			}
			for _, g := range generators {
				for name := range g.Affected(view, mesh.Diff(nil, w.Context())) {
					if _, err := generate.Build(g, view.Recording(), name); err != nil {
						faults = append(faults, fmt.Sprintf("%s %s of a %s: %v", typ.Name, name, n.Type, err))
					}
				}
			}
		}
	}
	return faults
}
