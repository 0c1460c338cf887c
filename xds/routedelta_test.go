package xds_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestWhoTakesRoutesByDelta: virtual hosts go one by one to an Envoy that is known to take
// them, over delta. All other clients get whole route configurations.
func TestWhoTakesRoutesByDelta(t *testing.T) {
	t.Parallel()
	auto := xdstest.NewServer(t, catalogue.Types())
	off := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.WholeRoutes = true })
	auto.Apply(service("a", 9080, "10.1.0.1"))
	off.Apply(service("a", 9080, "10.1.0.1"))
	for name, c := range map[string]struct {
		server  *xdstest.Server
		node    *corev3.Node
		variant protocol.Variant
		want    bool
	}{
		"Envoy 1.40": {auto, agent("envoy", 1, 40), protocol.Delta, true},
		"Envoy 1.40 of a server that sends whole tables": {off, agent("envoy", 1, 40), protocol.Delta, false},
		"Envoy 2.0":                        {auto, agent("envoy", 2, 0), protocol.Delta, true},
		"Envoy 1.40 in state of the world": {auto, agent("envoy", 1, 40), protocol.StateOfTheWorld, false},
		"Envoy 1.39":                       {auto, agent("envoy", 1, 39), protocol.Delta, false},
		"Envoy 0.99":                       {auto, agent("envoy", 0, 99), protocol.Delta, false},
		"another client":                   {auto, agent("other", 1, 40), protocol.Delta, false},
		"a client without a name":          {auto, node("10.0.0.1"), protocol.Delta, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := xdstest.Dial(t, c.server.Address, xdstest.ClientOptions{Node: c.node, Variant: c.variant})
			client.Subscribe(xdstest.RouteType, "9080")
			a := client.AwaitAnswer(xdstest.RouteType, 0)
			config := &routev3.RouteConfiguration{}
			if err := a.Resources["9080"].Body.UnmarshalTo(config); err != nil {
				t.Fatal(err)
			}
			if got := config.GetVhds() != nil; got != c.want {
				t.Errorf("virtual hosts by delta: %v", got)
			}
			if got := len(config.GetVirtualHosts()) == 1; got != c.want {
				t.Errorf("%d virtual hosts in the table", len(config.GetVirtualHosts()))
			}
		})
	}
}

// agent is a node that announces itself as a version of a client.
func agent(name string, major, minor uint32) *corev3.Node {
	n := node("10.0.0.1")
	n.UserAgentName = name
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
		Version: &typev3.SemanticVersion{MajorNumber: major, MinorNumber: minor},
	}}
	return n
}

// TestWholeTablesAreKept: an Envoy that holds whole route configurations keeps to them on
// any server, so that it is never without virtual hosts. One that has virtual hosts by
// delta keeps to these.
func TestWholeTablesAreKept(t *testing.T) {
	t.Parallel()
	auto := xdstest.NewServer(t, catalogue.Types())
	off := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.WholeRoutes = true })
	for _, s := range []*xdstest.Server{auto, off} {
		s.Apply(service("a", 9080, "10.1.0.1"))
	}
	for name, c := range map[string]struct {
		first *xdstest.Server
		want  bool
	}{"from a server that sends whole tables": {off, false}, "from one that does not": {auto, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := xdstest.ClientOptions{Node: agent("envoy", 1, 40), Variant: protocol.Delta, Follow: true}
			before := xdstest.Dial(t, c.first.Address, options)
			before.Subscribe(xdstest.ClusterType)
			before.Subscribe(xdstest.ListenerType)
			before.Await("routes", func(held func(string) map[string]xdstest.Held) bool { return len(held(xdstest.RouteType)) == 1 })
			before.Close()
			options.Resume = before
			after := xdstest.Dial(t, auto.Address, options)
			after.Subscribe(xdstest.RouteType, "unknown")
			after.Await("an answer", func(held func(string) map[string]xdstest.Held) bool {
				_, ok := held(xdstest.RouteType)["unknown"]
				return ok
			})
			config := &routev3.RouteConfiguration{}
			if err := after.Held(xdstest.RouteType)["9080"].Body.UnmarshalTo(config); err != nil {
				t.Fatal(err)
			}
			if got := config.GetVhds() != nil; got != c.want {
				t.Errorf("virtual hosts by delta: %v", got)
			}
			for _, a := range after.Answers(xdstest.RouteType) {
				if _, again := a.Resources["9080"]; again {
					t.Error("the table was sent again")
				}
			}
		})
	}
}
