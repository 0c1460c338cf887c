package generate_test

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/origins"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// broken cannot build one name.
type broken struct {
	generate.Generator
	name string
}

func (b broken) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	if name == b.name {
		return nil, nil, errors.New("it is broken")
	}
	return b.Generator.Build(v, name)
}

func (b broken) Unwrap() generate.Generator { return b.Generator }

// A Builder builds one resource, or all of a type, with parts and queries. If a resource
// cannot be built, there is an error and its composed resource does without it.
func TestBuilder(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("a", "a.test", "10.1.0.1"), xdstest.HTTPService("b", "b.test", "10.1.0.2"))
	proxy := xdstest.Node{}.Proxy(t)
	generators := generate.For(catalogue.Types(), proxy.Type)
	for i, g := range generators {
		if g.TypeURL() == resource.VirtualHostType {
			generators[i] = broken{g, "80/b.test:80"}
		}
	}
	b := generate.NewBuilder(w.Context(), proxy, generators)
	clusters, err := b.All(resource.ClusterType)
	var names []string
	for _, c := range clusters {
		names = append(names, c.Name)
	}
	if want := []string{"BlackHoleCluster", "PassthroughCluster", "outbound|80||a.test", "outbound|80||b.test"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("clusters %v, %v; want %v", names, err, want)
	}
	one, err := b.One(resource.ClusterType, "outbound|80||a.test")
	if of := origins.Of(one.Reads); err != nil || len(of) != 1 || of[0].Kind != schema.ServiceEntry || of[0].Name != "a" {
		t.Errorf("the cluster is of %v, %v", of, err)
	}
	if none, err := b.One(resource.ClusterType, "outbound|80||c.test"); err != nil || none.Resource != nil {
		t.Errorf("a cluster of nothing: %v, %v", none, err)
	}
	routes, err := b.One(resource.RouteType, "80")
	if err != nil || len(routes.Parts) != 1 || routes.Parts[0].Name != "80/a.test:80" {
		t.Errorf("routes %+v, %v", routes.Resource, err)
	}
	if hosts, err := b.All(resource.VirtualHostType); err == nil || len(hosts) != 1 {
		t.Errorf("%d virtual hosts, %v", len(hosts), err)
	}
}
