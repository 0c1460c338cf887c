package xds_test

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// dialGRPC connects as a gRPC client does: it requests listeners by name, and its user
// agent is that of the library.
func dialGRPC(t *testing.T, s *xdstest.Server, v protocol.Variant, listeners ...string) *xdstest.Client {
	t.Helper()
	n := node("10.0.0.1")
	n.UserAgentName = "gRPC Go"
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: n, Variant: v})
	c.Subscribe(xdstest.ListenerType, listeners...)
	return c
}

// routesOf says how the client gets the routes of a target: by name, or "nowhere".
func routesOf(t *testing.T, held map[string]xdstest.Held, target string) string {
	t.Helper()
	l, m := &listenerv3.Listener{}, &hcmv3.HttpConnectionManager{}
	if held[target].Body == nil {
		return "unanswered"
	}
	if err := held[target].Body.UnmarshalTo(l); err != nil {
		t.Fatal(err)
	}
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	if m.GetRds() == nil {
		return "nowhere"
	}
	return m.GetRds().GetRouteConfigName()
}

// TestProxylessNames: a gRPC client gets an answer for each name that it requests, also for
// one that does not exist, and hears when that changes.
func TestProxylessNames(t *testing.T) {
	t.Parallel()
	for _, v := range []protocol.Variant{protocol.StateOfTheWorld, protocol.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			const (
				there, late = "reviews.shop.example:80", "late.shop.example:80"
				routes      = "outbound|80||reviews.shop.example"
				missing     = "outbound|80|v9|reviews.shop.example"
			)
			s := xdstest.NewServer(t, catalogue.Types())
			s.Apply(service("reviews", 80, "10.1.0.1"))
			c := dialGRPC(t, s, v, there, late)
			leads := func(target, want string) {
				t.Helper()
				c.Await(target+" leads to "+want, func(held func(string) map[string]xdstest.Held) bool {
					return routesOf(t, held(xdstest.ListenerType), target) == want
				})
			}
			leads(there, routes)
			leads(late, "nowhere")
			for typeURL, names := range map[string][]string{
				xdstest.RouteType: {routes, "nowhere"}, xdstest.ClusterType: {routes, missing}, xdstest.EndpointType: {routes, missing},
			} {
				c.Subscribe(typeURL, names...)
				c.Await("an answer to each name", func(held func(string) map[string]xdstest.Held) bool {
					return len(held(typeURL)) == len(names)
				})
			}
			one := &clusterv3.Cluster{}
			if err := c.Held(xdstest.ClusterType)[missing].Body.UnmarshalTo(one); err != nil || one.GetType() != clusterv3.Cluster_EDS {
				t.Errorf("a cluster that there is not: %v, %v", one, err)
			}
			s.Apply(service("late", 80, "10.1.0.2"))
			leads(late, "outbound|80||late.shop.example")
			s.Delete(service("late", 80, "10.1.0.2"))
			leads(late, "nowhere")
			if p := s.XDS.Proxies(); len(p) != 1 || p[0].Type != "grpc" || p[0].Envoy != "gRPC Go" {
				t.Errorf("status: %+v", p)
			}
		})
	}
}

// TestUnknownNamesOfEnvoys: a gRPC client gets a resource for an unknown name, but an Envoy
// is told that no such listener or cluster exists.
func TestUnknownNamesOfEnvoys(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: protocol.Delta})
	for _, typeURL := range []string{xdstest.ListenerType, xdstest.ClusterType} {
		c.Subscribe(typeURL, "nowhere:80")
		if a := c.AwaitAnswer(typeURL, 0); len(a.Resources) > 0 || !slices.Equal(a.Removed, []string{"nowhere:80"}) {
			t.Errorf("answer: %v, removed %v", a.Names(), a.Removed)
		}
	}
}

// TestProxylessRoutesChangeInSteps: the routes of a gRPC client first name a cluster that
// is new to it, and lead there once it has the cluster and its endpoints. The same holds
// for routes with patches.
func TestProxylessRoutesChangeInSteps(t *testing.T) {
	t.Parallel()
	plain := catalogue.Types()
	for _, tc := range []struct {
		name    string
		variant protocol.Variant
		types   []generate.ResourceType
		stamps  int
	}{
		{"state of the world", protocol.StateOfTheWorld, plain, 0},
		{"delta", protocol.Delta, plain, 0},
		{"patched", protocol.Delta, xdstest.Stamped(plain), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const (
				routes = "outbound|80||a.shop.example"
				other  = "outbound|80||b.shop.example"
			)
			s := xdstest.NewServer(t, tc.types)
			published(t, s, s.Apply(service("a", 80, "10.1.0.1"), service("b", 80, "10.1.0.2"), route("a", "a")))
			c := dialGRPC(t, s, tc.variant, "a.shop.example:80")
			for _, typeURL := range []string{xdstest.RouteType, xdstest.ClusterType, xdstest.EndpointType} {
				c.Subscribe(typeURL, routes)
				c.AwaitAnswer(typeURL, 0)
			}
			leads := func(what string, want ...string) {
				t.Helper()
				c.Await(what, func(held func(string) map[string]xdstest.Held) bool {
					config := &routev3.RouteConfiguration{}
					body := held(xdstest.RouteType)[routes].Body
					if err := body.UnmarshalTo(config); err != nil || xdstest.Stamps(body) != tc.stamps {
						return false
					}
					var got []string
					for _, r := range config.GetVirtualHosts()[0].GetRoutes() {
						got = append(got, r.GetRoute().GetCluster())
					}
					return slices.Equal(got, want)
				})
			}
			leads("calls go to the service", routes)
			revision := s.Apply(route("a", "b"))
			leads("the other is named where no call gets", routes, other)
			c.Subscribe(xdstest.ClusterType, other)
			if p := s.XDS.Proxies(); p[0].Revision >= revision {
				t.Errorf("the client is taken to be at revision %d, of %d", p[0].Revision, revision)
			}
			c.Subscribe(xdstest.EndpointType, other)
			leads("calls go there", other)
			xdstest.Eventually(t, "the client is at the revision", func() bool { return s.XDS.Proxies()[0].Revision >= revision })
			if n := len(c.Answers(xdstest.RouteType)); n != 3 {
				t.Errorf("routes were sent %d times, not 3", n)
			}
		})
	}
}
