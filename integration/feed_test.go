package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	mcp "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

const (
	servicesType = "networking.istio.io/v1/ServiceEntry"
	rulesType    = "networking.istio.io/v1/DestinationRule"
)

// takeObjects connects a control plane that subscribes to services and rules.
func takeObjects(s *server, v protocol.Variant) *xdstest.Client {
	c := xdstest.Dial(s.t, s.xds, xdstest.ClientOptions{Node: xdstest.NewConfigNode("istiod-1", "istio-system"), Variant: v})
	c.Subscribe(servicesType)
	c.Subscribe(rulesType)
	return c
}

// awaitObjects waits until a control plane has exactly the objects of some names.
func awaitObjects(c *xdstest.Client, typeURL string, names ...string) {
	c.Await(typeURL+" "+strings.Join(names, ", "), func(held func(string) map[string]xdstest.Held) bool {
		return slices.Equal(slices.Sorted(maps.Keys(held(typeURL))), names)
	})
}

// TestAnotherControlPlaneIsFed: another control plane gets the objects of the store, or of all
// sources. It is listed as a control plane, and no change waits for it.
func TestAnotherControlPlaneIsFed(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		x := newShop(t)
		dir := newConfigDir(t, map[string]string{"rule.yaml": x.rule()})
		own := startServer(t, serverOptions{args: []string{"--config-dir", dir.path}})
		all := startServer(t, serverOptions{args: []string{"--config-dir", dir.path, "--export-sources"}})
		ofStore, ofAll := takeObjects(own, v), takeObjects(all, v)
		ofStore.AwaitAnswer(rulesType, 0)
		awaitObjects(ofAll, rulesType, "shop/reviews")
		if held := ofStore.Held(rulesType); len(held) > 0 {
			t.Errorf("objects of a directory are given: %v", held)
		}

		own.apply(x.entry(x.v1))
		awaitObjects(ofStore, servicesType, "shop/reviews")
		message := &mcp.Resource{}
		if err := ofStore.Held(servicesType)["shop/reviews"].Body.UnmarshalTo(message); err != nil {
			t.Fatal(err)
		}
		spec := &networking.ServiceEntry{}
		if err := message.GetBody().UnmarshalTo(spec); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(spec.GetHosts(), []string{shopHost}) || message.GetMetadata().GetVersion() == "" || message.GetMetadata().GetCreateTime() == nil {
			t.Errorf("it was given as %v", message)
		}
		if out := own.must("", "proxy", "status"); !strings.HasPrefix(out, "CONTROL PLANE") || !strings.Contains(out, "istiod-1.istio-system") {
			t.Errorf("proxy status: %s", out)
		}
		if out := own.must("", "proxy", "config", "all", "istiod-1"); !strings.Contains(out, "reviews") {
			t.Errorf("proxy config: %s", out)
		}
		if out := own.try("", "wait", "serviceentry/reviews", "-n", "shop"); out.code != 3 || !strings.Contains(out.stdout, "0/0") {
			t.Errorf("a change waits for a control plane: %+v", out)
		}
		own.remove(x.entry(x.v1))
		awaitObjects(ofStore, servicesType)
	})
}

// TestObjectsPassThroughAMesh: a mesh exports what it imported, with the age that the objects
// have at their origin.
func TestObjectsPassThroughAMesh(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		x := newShop(t)
		first := startServer(t, serverOptions{})
		between := startServer(t, serverOptions{args: append(fedBy(first, v), "--export-sources")})
		last := startServer(t, serverOptions{args: fedBy(between, v)})
		first.apply(x.entry(x.v1), x.rule())
		last.awaitFed(between, 2)
		age := func(s *server) string {
			return s.must("", "get", "serviceentry", "reviews", "-n", "shop", "-o", "jsonpath={.metadata.creationTimestamp}")
		}
		if here, there := age(first), age(last); here == "" || here != there {
			t.Errorf("created at %q, and two meshes on at %q", here, there)
		}
		first.remove(x.rule())
		last.awaitFed(between, 1)
	})
}

// BenchmarkFirstFeed measures how long a control plane takes to get 10,000 objects, as the only
// one, and how long a client of the API takes to list them.
func BenchmarkFirstFeed(b *testing.B) {
	const objects = 10_000
	s := startServer(b, serverOptions{})
	var all strings.Builder
	for i := range objects {
		all.WriteString("---\n" + xdstest.HTTPService(fmt.Sprintf("hub/s%05d", i), fmt.Sprintf("s%05d.hub.test", i), "10.1.0.1", "10.1.0.2"))
	}
	s.must(all.String(), "apply", "-f", "-", "--chunks", "2000")
	b.Run("list", func(b *testing.B) {
		var list struct {
			Items []map[string]any `json:"items"`
		}
		for b.Loop() {
			if body, err := s.get("/apis/networking.istio.io/v1/serviceentries", &list); err != nil || len(list.Items) != objects {
				b.Fatalf("%d objects: %v", len(list.Items), err)
			} else {
				b.ReportMetric(float64(len(body))/1e6, "MB")
			}
		}
	})
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		b.Run(strings.ReplaceAll(v.String(), " ", "-"), func(b *testing.B) {
			for b.Loop() {
				c := takeObjects(s, v)
				c.Await("all objects", func(held func(string) map[string]xdstest.Held) bool { return len(held(servicesType)) == objects })
				c.Close()
			}
		})
	}
}
