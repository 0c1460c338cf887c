package explain_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// moved is connected with the mesh of another context.
type moved struct {
	connected
	push *mesh.PushContext
}

func (m moved) Context() *mesh.PushContext { return m.push }

// TestExplainNamesTheSource: a route comes with the source of its object, and with none if that is the
// store's.
func TestExplainNamesTheSource(t *testing.T) {
	t.Parallel()
	m := routed(t)
	for _, source := range []string{"", "kube://east"} {
		in := m.Context().Inputs()
		object := *in.Configs.Get(config.Key{Kind: schema.VirtualService, Namespace: "shop", Name: "reviews"})
		object.Source = source
		content := in.Configs.Content()
		content.Configs = content.Configs.Set(object.Key().Path(), &object)
		in.Configs = in.Configs.Next(in.Configs.Revision()+1, content)
		e, err := explained(t, moved{m, m.Context().Next(in)}, "from=shop/vm-1&to=reviews.test:80&path=/a")
		if err != nil {
			t.Fatal(err)
		}
		if e.Route == nil || e.Route.Object != "virtualservice/shop/reviews" || e.Route.Source != source {
			t.Errorf("the route of an object of %q: %+v", source, e.Route)
		}
	}
}
