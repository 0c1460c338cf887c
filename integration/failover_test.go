package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// replicaPair are two servers of one etcd, and an Envoy with the addresses of both, under load.
type replicaPair struct {
	t       *testing.T
	servers [2]*server
	shop    *shop
	edge    *envoy
	load    *load
}

func startReplicas(t *testing.T, v protocol.Variant, args ...string) *replicaPair {
	t.Helper()
	etcd := startEtcd(t)
	p := &replicaPair{t: t, shop: newShop(t)}
	for i := range p.servers {
		p.servers[i] = startServer(t, serverOptions{etcd: etcd, args: args})
	}
	one, two := p.servers[0], p.servers[1]
	revision := one.apply(p.shop.all(100, 0))
	p.edge = one.launchEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v, xds: one.xds + "," + two.xds})
	p.server(p.home()).awaitSynced(revision, "edge")
	p.edge.awaitReady()
	awaitReply(t, p.shop.atGateway("/"), "v1")
	p.load = startLoad(t, "gateway", p.shop.atGateway("/"))
	return p
}

// home returns the number of the server that the Envoy is connected to.
func (p *replicaPair) home() int {
	p.t.Helper()
	home := -1
	eventually(p.t, "one of the servers has the Envoy", func() error {
		for i, s := range p.servers {
			if !s.process.running() {
				continue
			}
			proxies, err := s.proxies()
			if err != nil {
				return err
			}
			if _, ok := proxies["edge"]; ok {
				home = i
				return nil
			}
		}
		return errors.New("none has")
	})
	return home
}

func (p *replicaPair) server(i int) *server { return p.servers[i] }

// expectMoved waits until the Envoy is connected to another server, which sends it nothing in
// delta at first, and then changes.
func (p *replicaPair) expectMoved(v protocol.Variant, to *server, before map[string]int) {
	p.t.Helper()
	to.awaitSynced(to.revision(), "edge")
	if sent := less(to.sentResources(), before); v == protocol.Delta && len(sent) > 0 {
		p.t.Errorf("the other server sent what the proxy has: %v", sent)
	}
	p.load.sample(50)
	to.awaitSynced(to.apply(p.shop.routes(0, 100)), "edge")
	awaitOnly(p.t, []*load{p.load}, "v2")
	p.load.expectUnharmed()
	to.expectNothingRejected()
	p.edge.expectNothingRejected()
}

// TestEnvoyFailsOver kills the server of an Envoy that knows another. No request fails, and the
// other server sends nothing, as the Envoy lacks nothing.
func TestEnvoyFailsOver(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		p := startReplicas(t, v)
		home := p.home()
		other := p.server(1 - home)
		before := other.sentResources()
		p.server(home).kill()
		p.expectMoved(v, other, before)
	})
}

// TestEnvoyIsDrained: a server that is told to stop moves its proxies to the other one before
// it ends.
func TestEnvoyIsDrained(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		p := startReplicas(t, v, "--drain-time", "500ms")
		home := p.home()
		other := p.server(1 - home)
		before := other.sentResources()
		eventually(t, "the servers know each other", func() error { return knowsAnother(p.server(home)) })
		if err := p.server(home).process.terminate(t); err != nil {
			t.Errorf("the drained server ended with %v\n%s", err, p.server(home).process.tail())
		}
		if !strings.Contains(p.server(home).process.output(), "draining") {
			t.Errorf("the server has not drained:\n%s", p.server(home).process.tail())
		}
		p.expectMoved(v, other, before)
	})
}

// TestEnvoyConnectsAnew: an Envoy reconnects when its connection reaches its age limit, without
// effect on requests.
func TestEnvoyConnectsAnew(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{args: []string{"--max-connection-age", "1s"}}), newShop(t)
		s.apply(x.all(100, 0))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		awaitReply(t, x.atGateway("/"), "v1")
		l := startLoad(t, "gateway", x.atGateway("/"))
		since := connectedSince(t, s)
		sent := s.sentResources()
		eventually(t, "the Envoy has connected anew", func() error {
			if now := connectedSince(t, s); !now.After(since) {
				return fmt.Errorf("it is connected since %s", now)
			}
			return nil
		})
		if again := less(s.sentResources(), sent); v == protocol.Delta && len(again) > 0 {
			t.Errorf("resources were sent again: %v", again)
		}
		s.awaitSynced(s.apply(x.routes(0, 100)), "edge")
		awaitOnly(t, []*load{l}, "v2")
		l.expectUnharmed()
		edge.expectNothingRejected()
	})
}

func connectedSince(t *testing.T, s *server) (since time.Time) {
	t.Helper()
	eventually(t, "the Envoy is connected", func() error {
		proxies, err := s.proxies()
		if err != nil {
			return err
		}
		edge, ok := proxies["edge"]
		if !ok {
			return errors.New("it is not")
		}
		since = edge.ConnectedSince
		return nil
	})
	return since
}

// TestProxiesAreSpread: if one of two servers has all proxies, it sends some to the other.
func TestProxiesAreSpread(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	o := serverOptions{etcd: etcd, args: []string{"--balance-interval", "200ms"}}
	one, _ := startServer(t, o), startServer(t, o)
	one.apply(newShop(t).all(100, 0))
	var clients []*xdstest.Client
	for i := range 6 {
		clients = append(clients, connect(t, one, xdstest.ClientOptions{
			Node: xdstest.NewNode("sidecar", fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("client-%d", i), "shop", nil), Variant: protocol.Delta,
		}))
	}
	eventually(t, "a proxy is sent away", func() error {
		for _, c := range clients {
			select {
			case <-c.Done():
				return nil
			default:
			}
		}
		return errors.New("all stay")
	})
}

// knowsAnother returns an error until a server knows of another one.
func knowsAnother(s *server) error {
	text, err := s.get("/metrics", nil)
	if err == nil && !strings.Contains(string(text), "\nportolan_replicas 2\n") {
		err = errors.New("it knows of no other")
	}
	return err
}
