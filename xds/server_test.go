package xds_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// service is a ServiceEntry of a host on a port with endpoints at addresses.
func service(name string, port int, addresses ...string) string {
	out := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.shop.example]
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints:
`, name, port)
	for _, a := range addresses {
		out += fmt.Sprintf("  - {address: %s, labels: {version: v1}}\n", a)
	}
	return out
}

func route(name, destination string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.shop.example]
  http: [{route: [{destination: {host: %[2]s.shop.example}}]}]
`, name, destination)
}

const subsets = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews.shop.example
  subsets: [{name: v1, labels: {version: v1}}]
`

// node is a sidecar of the namespace shop that captures no traffic.
func node(ip string) *corev3.Node { return xdstest.NewNode("sidecar", ip, "client", "shop", nil) }

func dial(t *testing.T, s *xdstest.Server, v protocol.Variant, initial map[string]map[string]string) *xdstest.Client {
	t.Helper()
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{
		Node: node("10.0.0.1"), Variant: v, Follow: true, Initial: initial,
	})
	c.Subscribe(xdstest.ClusterType)
	c.Subscribe(xdstest.ListenerType)
	return c
}

// settled waits until the proxy is at a revision in all types.
func settled(t *testing.T, s *xdstest.Server, revision int64) {
	t.Helper()
	xdstest.Eventually(t, fmt.Sprintf("the proxy at revision %d", revision), func() bool {
		for _, p := range s.XDS.Proxies() {
			if p.Revision < revision {
				return false
			}
		}
		return len(s.XDS.Proxies()) > 0
	})
}

func variants(t *testing.T, test func(*testing.T, protocol.Variant)) {
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

// sent counts, by type, the answers that came after a number of earlier ones.
func sent(c *xdstest.Client, before int) map[string]int {
	out := map[string]int{}
	for _, a := range c.Answers("")[before:] {
		out[a.TypeURL]++
	}
	return out
}

func TestAnEndpointChangeSendsEndpointsOnly(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		c := dial(t, s, v, nil)
		settled(t, s, s.Apply(service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.9")))
		before := len(c.Answers(""))
		settled(t, s, s.Apply(service("reviews", 9080, "10.1.0.1", "10.1.0.2")))
		if d := cmp.Diff(map[string]int{xdstest.EndpointType: 1}, sent(c, before)); d != "" {
			t.Errorf("answers (-want +got):\n%s", d)
		}
		last := c.Answers(xdstest.EndpointType)
		if got := last[len(last)-1].Names(); !slices.Equal(got, []string{"outbound|9080||reviews.shop.example"}) {
			t.Errorf("sent the endpoints of %v", got)
		}
		r := s.XDS.LastRequest()
		key := config.Key{Kind: schema.ServiceEntry, Namespace: "shop", Name: "reviews.shop.example"}
		if _, named := r.ConfigsUpdated[key]; r.Full || !named || len(r.ConfigsUpdated) != 1 {
			t.Errorf("the request is %+v, want endpoints only, of the service", r)
		}
	})
}

func TestAnUnrelatedChangeSendsNothing(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		c := dial(t, s, v, nil)
		settled(t, s, s.Apply(service("reviews", 9080, "10.1.0.1")))
		before := len(c.Answers(""))
		// A rule for a host that is not there, and a service that is not exported
		// to the proxy's namespace.
		settled(t, s, s.Apply(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: other, namespace: elsewhere}
spec: {host: other.example, subsets: [{name: v1, labels: {a: b}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: private, namespace: elsewhere}
spec:
  hosts: [private.example]
  exportTo: ["."]
  ports: [{number: 9080, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.9.0.1}]
`))
		if d := cmp.Diff(map[string]int{}, sent(c, before)); d != "" {
			t.Errorf("answers (-want +got):\n%s", d)
		}
	})
}

// TestAChangedClusterMakesItsEndpointsDue: Envoy warms a changed cluster and
// waits for endpoints, which it has to be sent although they did not change.
func TestAChangedClusterMakesItsEndpointsDue(t *testing.T) {
	t.Parallel()
	pool := `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews.shop.example, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}
`
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		c := dial(t, s, v, nil)
		settled(t, s, s.Apply(service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.9")))
		before := len(c.Answers(""))
		settled(t, s, s.Apply(pool))
		if d := cmp.Diff(map[string]int{xdstest.ClusterType: 1, xdstest.EndpointType: 1}, sent(c, before)); d != "" {
			t.Errorf("answers (-want +got):\n%s", d)
		}
		after := c.Answers("")[before:]
		if after[0].TypeURL != xdstest.ClusterType {
			t.Errorf("the first answer is of %s, want clusters", after[0].TypeURL)
		}
		if got := after[1].Names(); !slices.Equal(got, []string{"outbound|9080||reviews.shop.example"}) {
			t.Errorf("sent the endpoints of %v", got)
		}
	})
}

// TestReconnectSendsWhatIsLacking: when a delta client reconnects, the server sends what the
// client states in another version than the present one, and nothing else.
func TestReconnectSendsWhatIsLacking(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	c := dial(t, s, protocol.Delta, nil)
	settled(t, s, s.Apply(service("reviews", 9080, "10.1.0.1"), route("reviews", "reviews")))
	initial := map[string]map[string]string{}
	for _, typeURL := range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType} {
		initial[typeURL] = map[string]string{}
		for name, h := range c.Held(typeURL) {
			initial[typeURL][name] = h.Version
		}
		if len(initial[typeURL]) == 0 {
			t.Fatalf("the client holds nothing of %s", typeURL)
		}
	}
	reconnect := func(typeURL string, states map[string]string) *xdstest.Client {
		again := xdstest.Dial(t, s.Address, xdstest.ClientOptions{
			Node: node("10.0.0.7"), Initial: map[string]map[string]string{typeURL: states}, Variant: protocol.Delta,
		})
		names := slices.Sorted(maps.Keys(states))
		if typeURL == xdstest.ClusterType || typeURL == xdstest.ListenerType {
			names = []string{"*"}
		}
		again.Subscribe(typeURL, names...)
		return again
	}
	for typeURL, states := range initial {
		again := reconnect(typeURL, states)
		// A further, unknown name is answered; what was stated is not.
		again.Subscribe(typeURL, "unknown")
		a := again.AwaitAnswer(typeURL, 0)
		for name := range a.Resources {
			if name != "unknown" {
				t.Errorf("sent %s %s again", typeURL, name)
			}
		}
		changed := slices.Min(slices.Collect(maps.Keys(states)))
		older := maps.Clone(states)
		older[changed] = "older"
		if got := reconnect(typeURL, older).AwaitAnswer(typeURL, 0).Names(); !slices.Equal(got, []string{changed}) {
			t.Errorf("%s: a client with an older %s was sent %v", typeURL, changed, got)
		}
	}
}

// TestUnknownNamesAreAnswered in both variants, at once.
func TestUnknownNamesAreAnswered(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		for _, typeURL := range []string{
			xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType,
			"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
		} {
			c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
			c.Subscribe(typeURL, "unknown")
			a := c.AwaitAnswer(typeURL, 0)
			empty := typeURL == xdstest.EndpointType || typeURL == xdstest.RouteType
			if empty && !slices.Equal(a.Names(), []string{"unknown"}) {
				t.Errorf("%s: answered with %v", typeURL, a.Names())
			}
			if !empty && (len(a.Resources) > 0 || (v == protocol.Delta && !slices.Equal(a.Removed, []string{"unknown"}))) {
				t.Errorf("%s: answered with %v, removed %v", typeURL, a.Names(), a.Removed)
			}
		}
	})
}

// TestRemovalsComeLast: a client gives up a cluster only after it has taken the
// routes that no longer name it.
func TestRemovalsComeLast(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		c := dial(t, s, v, nil)
		settled(t, s, s.Apply(service("a", 9080, "10.1.0.1"), service("b", 9080, "10.1.0.2"), route("a", "b")))
		old := "outbound|9080||b.shop.example"
		if _, ok := c.Held(xdstest.ClusterType)[old]; !ok {
			t.Fatalf("no cluster %s", old)
		}
		before := len(c.Answers(""))
		ops := xdstest.Ops(t, route("a", "a"))
		ops = append(ops, xdstest.Removals(t, service("b", 9080, "10.1.0.2"))...)
		settled(t, s, s.Batch(ops))
		routes, gone := -1, -1
		for i, a := range c.Answers("")[before:] {
			_, has := a.Resources[old]
			switch {
			case a.TypeURL == xdstest.RouteType:
				routes = i
			case a.TypeURL == xdstest.ClusterType && gone < 0 && (slices.Contains(a.Removed, old) || (v == protocol.StateOfTheWorld && !has)):
				gone = i
			}
		}
		if routes < 0 || gone < routes {
			t.Errorf("routes in answer %d, the cluster gone in answer %d", routes, gone)
		}
	})
}

// TestTwoServersServeTheSameBytes for one node: one that saw each change, and
// one that saw them all at once.
func TestTwoServersServeTheSameBytes(t *testing.T) {
	t.Parallel()
	store := memory.New(schema.Pilot(), memory.Options{Domain: "cluster.local"})
	first := xdstest.NewServerOn(t, store, catalogue.Types())
	c := dial(t, first, protocol.Delta, nil)
	var revision int64
	for i := range 10 {
		revision = first.Apply(service(fmt.Sprintf("s%d", i), 9080, fmt.Sprintf("10.1.0.%d", i+1)), route(fmt.Sprintf("s%d", i), "s0"))
	}
	revision = max(revision, first.Apply(subsets), first.Delete(route("s3", "s0")))
	settled(t, first, revision)
	second := xdstest.NewServerOn(t, store, catalogue.Types())
	d := dial(t, second, protocol.Delta, nil)
	settled(t, second, revision)
	for _, typeURL := range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType} {
		a, b := c.Held(typeURL), d.Held(typeURL)
		if len(a) == 0 || len(a) != len(b) {
			t.Errorf("%s: %d and %d resources", typeURL, len(a), len(b))
		}
		for name, h := range a {
			if h.Version != b[name].Version || !proto.Equal(h.Body, b[name].Body) {
				t.Errorf("%s %s differs", typeURL, name)
			}
		}
	}
}

// TestARejectionIsTold in the proxy's words, and the rejected resources are not sent again.
func TestARejectionIsTold(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	revision := s.Apply(service("reviews", 9080, "10.1.0.1"))
	xdstest.Eventually(t, "the service is published", func() bool { return s.XDS.Context().Revision() >= revision })
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{
		Node: node("10.0.0.1"), Variant: protocol.Delta, Refuse: func(*xdstest.Answer) string { return "no such thing" },
	})
	c.Subscribe(xdstest.ClusterType)
	xdstest.Eventually(t, "the rejection", func() bool {
		for _, p := range s.XDS.Proxies() {
			if p.Types[0].State == protocol.Rejected && p.Types[0].Message == "no such thing" {
				return true
			}
		}
		return false
	})
	before := len(c.Answers(""))
	published(t, s, s.Apply(private))
	if n := len(c.Answers("")); n != before {
		t.Errorf("%d answers, and %d once all were refused", n, before)
	}
}

// TestBadNodesAreRefused with words that say what to do.
func TestBadNodesAreRefused(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	nameless := node("10.0.0.1")
	nameless.Id = "me"
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: nameless})
	c.Subscribe(xdstest.ClusterType)
	if err := c.AwaitEnd(); err == nil || !strings.Contains(err.Error(), "type~ip~id~domain") {
		t.Errorf("the stream ended with %v", err)
	}
}
