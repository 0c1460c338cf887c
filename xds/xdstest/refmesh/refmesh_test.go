package refmesh_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// TestTheMeshIsValid: the API accepts all objects, before and after every change, with no other
// warnings than of fields that are not supported yet.
func TestTheMeshIsValid(t *testing.T) {
	t.Parallel()
	m := refmesh.Mesh{Services: 100, MeshWide: 50, PerNamespace: 20, Localities: 4, LabelSets: 10, Patterns: 3, Gateways: 3, Peers: true, Patches: 10}
	objects := m.Objects()
	m.Delegated = true
	objects = append(objects, m.Objects()...)
	for _, c := range []refmesh.Change{
		m.ChangePattern(1, 1), m.ChangeGatewayServer(1, 1), m.ChangeGatewayRoutes(1, 1), m.ChangeDoor(1),
		m.ChangeEndpoint(refmesh.Target, 1), m.ChangeRoutes(refmesh.Target, 1), m.ChangeRule(refmesh.Target, 1), m.NewService(1),
	} {
		objects = append(objects, c.Objects...)
	}
	for _, object := range objects {
		warnings, err := schema.Pilot().Kind(object.GroupVersionKind).Validate(object)
		if err != nil {
			t.Errorf("%s: %v", object.Key(), err)
		}
		for _, w := range warnings {
			if !strings.Contains(w.Message, "not served yet") {
				t.Errorf("%s: %s", object.Key(), w)
			}
		}
	}
}

// TestTheMeshIsWhatIsSaidOfIt counts objects and namespaces.
func TestTheMeshIsWhatIsSaidOfIt(t *testing.T) {
	t.Parallel()
	kinds, namespaces, keys := map[string]int{}, map[string]bool{}, map[config.Key]bool{}
	m := refmesh.Mesh{Services: 100, PerNamespace: 20, Delegated: true, Patterns: 7}
	for _, object := range m.Objects() {
		kinds[object.Kind]++
		namespaces[object.Namespace], keys[object.Key()] = true, true
	}
	want := map[string]int{"ServiceEntry": 107, "VirtualService": 100, "DestinationRule": 50, "Sidecar": 20}
	for kind, n := range want {
		if kinds[kind] != n {
			t.Errorf("%d of %s, want %d", kinds[kind], kind, n)
		}
	}
	if len(namespaces) != refmesh.Namespaces || len(keys) != 277 {
		t.Errorf("%d namespaces, %d objects", len(namespaces), len(keys))
	}
	if !refmesh.HasRoutes(refmesh.Target) || !refmesh.HasRule(refmesh.Target) {
		t.Error("the target lacks routes or a rule")
	}
}

// TestAClusterHasHalfOfTheMesh: of each kind it has half of the objects, and the store the others.
func TestAClusterHasHalfOfTheMesh(t *testing.T) {
	t.Parallel()
	m := refmesh.Mesh{Services: 80, HalfInCluster: true}
	stored, clustered, keys := map[string]int{}, map[string]int{}, map[config.Key]bool{}
	for _, object := range m.Objects() {
		stored[object.Kind]++
		keys[object.Key()] = true
	}
	for _, object := range m.ObjectsOfCluster() {
		clustered[object.Kind]++
		keys[object.Key()] = true
	}
	if !maps.Equal(stored, clustered) || stored["ServiceEntry"] != 40 || stored["VirtualService"] != 20 || len(keys) != 160 {
		t.Errorf("the store has %v, the cluster %v, and together they have %d", stored, clustered, len(keys))
	}
	if m.InCluster(refmesh.Target) || !m.InCluster(refmesh.TargetInCluster) || !refmesh.HasRoutes(refmesh.TargetInCluster) || !refmesh.HasRule(refmesh.TargetInCluster) {
		t.Error("the targets are not those of the halves")
	}
	if len((refmesh.Mesh{Services: 80}).ObjectsOfCluster()) != 0 {
		t.Error("a mesh without a cluster has objects of one")
	}
}

// TestProxiesAreOfTheMesh: proxies differ, and are in one namespace or in all.
func TestProxiesAreOfTheMesh(t *testing.T) {
	t.Parallel()
	for _, spread := range []bool{false, true} {
		p := refmesh.Proxies{Mesh: refmesh.Mesh{Services: 1000, Localities: 4, LabelSets: 10}, Spread: spread, Interception: "NONE"}
		ids, namespaces, zones := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for n := range 200 {
			node := p.Node(n)
			ids[node.GetId()] = true
			namespaces[node.GetMetadata().GetFields()["NAMESPACE"].GetStringValue()] = true
			zones[node.GetLocality().GetZone()] = true
		}
		want := 1
		if spread {
			want = refmesh.Namespaces
		}
		if len(ids) != 200 || len(namespaces) != want || len(zones) != 4 {
			t.Errorf("spread %t: %d proxies, %d namespaces, %d zones", spread, len(ids), len(namespaces), len(zones))
		}
	}
}
