package integration

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGRPCFailover: two servers share an address. It kills the one with the clients, again and
// again, and changes the routes before and after they have reconnected to the other. That one
// continues where the first was, and no call fails, also if only the connections break. A
// target that the clients first call while a server is down works as well.
func TestGRPCFailover(t *testing.T) {
	t.Parallel()
	etcd, x := startEtcd(t), &shop{}
	servers := []*server{startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})}
	door := processtest.NewLink(t, servers[0].xds, nil)
	door.Also(servers[1].xds)
	g := servers[0].startGRPCSceneAt(door.Address(), x.routes(100, 0), grpcEntryOf("other", startGRPCBackend(t, "other")))
	loads := g.startLoads()
	g.awaitClients(g.revision())
	for i := range 3 {
		from, to := servers[i%2], servers[(i+1)%2]
		from.kill()
		g.server = to
		for _, c := range g.clients {
			awaitReply(t, c.other(), "other")
		}
		g.moveTo(loads, "v2", x.routes(0, 100))
		g.moveTo(loads, "other", grpcOnlyTo("other.shop.test", ""))
		from.start()
		g.moveTo(loads, "v1", x.routes(100, 0))
	}
	g.expectNothingRejected()
	door.Cut()
	g.apply(x.routes(0, 100))
	for _, l := range loads {
		expectShare(t, l.name+" without a server", l.sample(50), "v1", 100)
	}
	door.Mend()
	g.server = servers[0]
	g.awaitAnswered(loads, "v2") // the Go library has a connection for each target
	g.moveTo(loads, "other", grpcOnlyTo("other.shop.test", ""))
	g.moveTo(loads, "v1", grpcEntryOf("other", g.v1))
	for _, c := range g.clients {
		awaitReply(t, c.other(), "v1")
	}
	g.expectUnharmed(loads)
}

// other calls another service than the loads.
func (c *grpcClient) other() request {
	return request{port: c.port, host: "other.shop.test:8080", path: anyMethod}
}

// TestGRPCServerList gives the clients two addresses and kills the first server. No call fails.
// The Go, Python and Java libraries connect to the second when they lack something; the
// JavaScript one does not. Once the first is back, it has all clients, with the changes made
// meanwhile, and its changes reach them. Exception: if the Go library has meanwhile used a new
// target, it keeps what the second server sent.
func TestGRPCServerList(t *testing.T) {
	etcd, x := startEtcd(t), &shop{}
	one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
	g := one.startGRPCSceneAt(one.xds+","+two.xds, x.routes(100, 0), grpcEntryOf("other", startGRPCBackend(t, "other")))
	g.addClients(one.xds+","+two.xds, guestLanguages(t)...)
	loads := g.startLoads()
	g.awaitClients(g.revision())
	one.kill()
	two.apply(x.routes(0, 100))
	for _, c := range g.clients {
		if c.name != "js" {
			awaitReply(t, c.other(), "other")
		}
	}
	for _, l := range loads {
		l.sample(50)
	}
	one.start()
	awaitAnswers(t, loads, "v2")
	two.awaitDeserted()
	for _, c := range g.clients {
		awaitReply(t, c.other(), "other")
	}
	one.apply(grpcEntryOf("other", g.v1), x.routes(100, 0))
	awaitAnswers(t, loads, "v1")
	for _, c := range g.clients {
		if c.name != "go" {
			awaitReply(t, c.other(), "v1")
		}
	}
	expectForgotten(t, g, g.clients[0].other())
	g.expectUnharmed(loads)
}

// expectForgotten fails if another backend than at first answers the Go client, or if the
// client subscribes to more of that target than its listener. Then the library has improved,
// and can have a list of servers, which docs/operations/grpc.md denies.
func expectForgotten(t *testing.T, g *grpcScene, q request) {
	t.Helper()
	if got := send(t, q); got.String() != "other" {
		t.Errorf("go is told of changes: it is answered by %s", got)
	}
	listenerAlone := regexp.MustCompile(`go\.shop +grpc +shop +NOT SENT +NOT SENT +SYNCED `) // CDS, EDS, LDS
	if shown := g.must("", "proxy", "status"); len(listenerAlone.FindAllString(shown, -1)) != 1 {
		t.Errorf("go does not ask for the listener alone:\n%s", shown)
	}
}

// awaitDeserted waits until no proxy is connected.
func (s *server) awaitDeserted() {
	s.t.Helper()
	eventually(s.t, "no proxy is connected", func() error {
		connected, err := s.proxies()
		if err == nil && len(connected) > 0 {
			err = fmt.Errorf("connected are %v", slices.Sorted(maps.Keys(connected)))
		}
		return err
	})
}

// TestGRPCRefusals sends routes, clusters and endpoints that the libraries reject. Each client
// rejects them once, continues with what it had, is listed with its error, and accepts the next
// good ones.
func TestGRPCRefusals(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	relay := startRelay(t, s.xds)
	g := s.startGRPCSceneAt(relay.address, grpcOnlyTo(shopHost, "v1"))
	v3 := startGRPCBackend(t, "v3")
	loads := g.startLoads()
	g.awaitClients(g.revision())
	limited := func(n int) string {
		return strings.Replace(g.shop.rule(), "spec:\n", fmt.Sprintf("spec:\n  trafficPolicy: {connectionPool: {http: {http2MaxRequests: %d}}}\n", n), 1)
	}
	for _, tc := range []struct {
		name, typeURL string
		spoil         func(proto.Message)
		change        string // which the client rejects
		answeredBy    string // meanwhile
		good          []string
		then          string
	}{
		{name: "RDS", typeURL: xdstest.RouteType, change: grpcOnlyTo(shopHost, "v2"), answeredBy: "v1",
			spoil: func(m proto.Message) {
				routes := m.(*routev3.RouteConfiguration).VirtualHosts[0].Routes
				routes[0].Action = &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{
					WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "none"}}},
				}}}
			}, good: []string{grpcOnlyTo(shopHost, "v2") + "    timeout: 8s\n"}, then: "v2"},
		{name: "CDS", typeURL: xdstest.ClusterType, change: limited(1000), answeredBy: "v2",
			spoil: func(m proto.Message) { m.(*clusterv3.Cluster).LbPolicy = clusterv3.Cluster_MAGLEV },
			good:  []string{limited(1001), grpcOnlyTo(shopHost, "v1")}, then: "v1"},
		{name: "EDS", typeURL: xdstest.EndpointType, change: grpcEntry(g.v2), answeredBy: "v1",
			spoil: func(m proto.Message) {
				m.(*endpointv3.ClusterLoadAssignment).Endpoints = []*endpointv3.LocalityLbEndpoints{{LoadBalancingWeight: wrapperspb.UInt32(1)}}
			}, good: []string{grpcEntry(g.v1, v3), grpcOnlyTo(shopHost, "")}, then: "v3"},
	} {
		relay.spoilWith(tc.typeURL, tc.spoil)
		g.apply(tc.change)
		g.expectRefused(loads, tc.name, tc.answeredBy)
		relay.spoilWith(tc.typeURL, nil)
		g.awaitHealed(g.apply(tc.good...))
		g.awaitAnswered(loads, tc.then)
	}
	for _, l := range loads {
		l.expectUnharmed()
	}
}

// awaitHealed waits until all clients have accepted everything as of a revision.
func (g *grpcScene) awaitHealed(revision int64) {
	g.t.Helper()
	for _, c := range g.clients {
		eventually(g.t, c.name+" refuses nothing any more", func() error {
			connected, err := g.proxies()
			if err == nil && !syncedAt(connected[c.name], revision) {
				err = fmt.Errorf("%+v", connected[c.name])
			}
			return err
		})
	}
}

// expectRefused waits until each client has rejected a type. It fails if one has done so more
// than once, if the server sends more, or if calls get other answers than before.
func (g *grpcScene) expectRefused(loads []*load, typ, answeredBy string) {
	g.t.Helper()
	for _, c := range g.clients {
		eventually(g.t, c.name+" is shown to have refused "+typ, func() error {
			connected, err := g.proxies()
			if err != nil {
				return err
			}
			i := slices.IndexFunc(connected[c.name].Types, func(s progress.TypeStatus) bool {
				return s.Name == typ && s.State == protocol.Rejected && s.Message != ""
			})
			if i < 0 {
				return fmt.Errorf("%+v", connected[c.name].Types)
			}
			return nil
		})
	}
	if shown := g.must("", "proxy", "status"); strings.Count(shown, "REJECTED") != len(g.clients) {
		g.t.Errorf("proxy status:\n%s", shown)
	}
	sent := g.responses()
	for _, l := range loads {
		expectShare(g.t, l.name+", which refused "+typ, l.sample(60), answeredBy, 100)
	}
	expectEqual(g.t, "what is sent to clients that refused "+typ, less(g.responses(), sent), map[string]int{})

}
