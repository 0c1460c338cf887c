package xds_test

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// used returns which of some objects are in use on a server, in order.
func used(t *testing.T, s *xdstest.Server, documents string) []string {
	t.Helper()
	out := []string{}
	parts := s.XDS.UsedObjects()
	for _, o := range xdstest.Objects(t, documents) {
		id := status.ObjectID(o.Key())
		if _, found := slices.BinarySearch(parts[status.UsePart(id)], id); found {
			out = append(out, o.Key().String())
		}
	}
	slices.Sort(out)
	return out
}

// awaitUsed waits until exactly the wanted ones of the objects are in use.
func awaitUsed(t *testing.T, s *xdstest.Server, what, documents string, want ...string) {
	t.Helper()
	slices.Sort(want)
	var diff string
	defer func() {
		if diff != "" {
			t.Logf("%s: in use (-want +got):\n%s", what, diff)
		}
	}()
	xdstest.Eventually(t, what, func() bool {
		diff = cmp.Diff(append([]string{}, want...), used(t, s, documents))
		return diff == ""
	})
}

// TestObjectsInUse: an object is in use exactly while a connected proxy, of whatever kind,
// should have a resource that is made of it.
func TestObjectsInUse(t *testing.T) {
	t.Parallel()
	objects := strings.Join([]string{
		service("reviews", 9080, "10.1.0.1"), service("own", 9080, "10.0.0.1"), route("reviews", "reviews"), subsets,
		xdstest.Object("VirtualService", "shop/younger", "{hosts: [reviews.shop.example], http: [{route: [{destination: {host: reviews.shop.example}}]}]}"),
		xdstest.Object("DestinationRule", "shop/nobody", "{host: nobody.shop.example, subsets: [{name: v1, labels: {version: v1}}]}"),
		xdstest.Object("ServiceEntry", "shop/selecting", "{hosts: [selecting.shop.example], resolution: STATIC, ports: [{number: 9080, name: http, protocol: HTTP}], workloadSelector: {labels: {app: w}}}"),
		xdstest.Object("WorkloadEntry", "shop/w", "{address: 10.1.0.8, labels: {app: w}}"),
		xdstest.Object("WorkloadEntry", "shop/stray", "{address: 10.1.0.9, labels: {app: stray}}"),
		xdstest.Object("Sidecar", "silent/s", "{ingress: [{port: {number: 9080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:9080'}], egress: [{hosts: ['~/*']}]}"),
		strings.Split(twoGateways, "---\n")[0],
		xdstest.Object("Gateway", "shop/elsewhere", "{selector: {app: elsewhere}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"),
		xdstest.Object("VirtualService", "shop/gated", "{hosts: [gated.example], gateways: [front], http: [{route: [{destination: {host: reviews.shop.example}}]}]}"),
	}, "---\n")
	s := xdstest.NewServer(t, catalogue.Types())
	published(t, s, s.Apply(objects))
	open := func(n *corev3.Node) *xdstest.Client {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: n, Variant: protocol.Delta, Follow: true})
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.ListenerType)
		return c
	}
	awaitUsed(t, s, "no proxy is there", objects)

	count := s.XDS.ChangeCount()
	client := open(node("10.0.0.1"))
	mesh := []string{
		"serviceentry/shop/reviews", "serviceentry/shop/own", "virtualservice/shop/reviews", "destinationrule/shop/reviews",
		"serviceentry/shop/selecting", "workloadentry/shop/w",
	}
	awaitUsed(t, s, "a sidecar", objects, mesh...)
	if s.XDS.ChangeCount() == count {
		t.Error("ChangeCount has not changed")
	}

	gateway := open(xdstest.NewNode("router", "10.0.0.9", "gw", "shop", map[string]string{"app": "gw"}))
	awaitUsed(t, s, "and a gateway", objects, append([]string{"gateway/shop/front", "virtualservice/shop/gated"}, mesh...)...)
	gateway.Close()
	awaitUsed(t, s, "the gateway is gone", objects, mesh...)

	// A proxy that sees no service uses its Sidecar.
	silent := open(xdstest.NewNode("sidecar", "10.0.0.5", "silent", "silent", nil))
	awaitUsed(t, s, "a sidecar that calls nobody", objects, append([]string{"sidecar/silent/s"}, mesh...)...)
	silent.Close()

	// Once the older VirtualService is gone, the younger one of the same host is in use.
	s.Delete(route("reviews", "reviews"))
	awaitUsed(t, s, "the older is gone", objects, append([]string{"virtualservice/shop/younger"}, slices.DeleteFunc(slices.Clone(mesh), func(o string) bool { return o == "virtualservice/shop/reviews" })...)...)
	client.Close()
	awaitUsed(t, s, "all are gone", objects)
}
