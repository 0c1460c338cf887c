package integration

import (
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

// takeObjects connects a control plane to a server, which takes services and rules.
func takeObjects(s *server, v protocol.Variant) *xdstest.Client {
	c := xdstest.Dial(s.t, s.xds, xdstest.ClientOptions{Node: xdstest.NewConfigNode("istiod-1", "istio-system"), Variant: v})
	c.Subscribe(servicesType)
	c.Subscribe(rulesType)
	return c
}

// awaitObjects waits until a control plane has objects of some names and no others.
func awaitObjects(c *xdstest.Client, typeURL string, names ...string) {
	c.Await(typeURL+" "+strings.Join(names, ", "), func(held func(string) map[string]xdstest.Held) bool {
		return slices.Equal(slices.Sorted(maps.Keys(held(typeURL))), names)
	})
}

// TestAnotherControlPlaneIsFed with the objects of the store, or of all sources; it is shown
// as what it is, and no change waits for it.
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
		if out := own.must("", "wait", "serviceentry/reviews", "-n", "shop"); strings.Contains(out, "1/1") {
			t.Errorf("a change waits for a control plane: %s", out)
		}
		own.remove(x.entry(x.v1))
		awaitObjects(ofStore, servicesType)
	})
}
