package delivery_test

import (
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
)

// request is the first request for a type by a client that reconnects and states what it
// has.
func request(initial map[string]string, names ...string) protocol.Request {
	return protocol.Request{Subscribe: protocoltest.NameSet(names...), Initial: protocoltest.Versions(initial)}
}

// TestAChangedListenerHasItsRoutesSentAgain, since it waits for them anew.
func TestAChangedListenerHasItsRoutesSentAgain(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("LDS l: >r", "RDS r: 1", "RDS s: 1")
		p.offer("LDS l: >r 2", "RDS r: 1", "RDS s: 1")
		p.sends("its own", "LDS +l", "RDS +r")
	})
}

// TestVirtualHostsAfterTheirRoutes: virtual hosts are sent once the client has
// acknowledged their route configuration, and not at all if it does not request that.
func TestVirtualHostsAfterTheirRoutes(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.offer("LDS l: >r", "RDS r: 1", "RDS other: 1", "VHDS r/a: 1", "VHDS r/b: 1", "VHDS other/a: 1")
	p.ask(vhds)
	p.sends("an answer", "VHDS")
	p.ack(vhds)
	p.ask(rds, "r")
	p.sends("the routes", "RDS +r")
	p.sends("not before they are taken")
	p.ack(rds)
	p.sends("what lives in them", "VHDS +r/a +r/b")
	p.ack(vhds)
	p.offer("LDS l: >r", "RDS r: 2", "RDS other: 1", "VHDS r/a: 1", "VHDS r/b: 2", "VHDS other/a: 2")
	p.sends("a change of both", "RDS +r")
	p.ack(rds)
	p.sends("keeps those that did not change", "VHDS +r/b")
	if st := p.sequencer.Subscription(vhds).Status(); st.State != protocol.Stale {
		t.Errorf("state %s", st.State)
	}
	p.ack(vhds)
	if st := p.sequencer.Subscription(vhds).Status(); st.State != protocol.Synced {
		t.Errorf("state %s: hosts of routes that nobody asks for are not lacking", st.State)
	}
}

// TestRefusedRoutesHaveNoVirtualHosts.
func TestRefusedRoutesHaveNoVirtualHosts(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.offer("RDS r: bad", "VHDS r/a: 1")
	p.ask(vhds)
	p.sends("an answer", "VHDS")
	p.ack(vhds)
	p.ask(rds, "r")
	p.sends("the routes", "RDS +r")
	p.nack(rds)
	p.sends("nothing")
	p.offer("RDS r: good", "VHDS r/a: 1")
	p.sends("repaired", "RDS +r")
	p.ack(rds)
	p.sends("what lives in them", "VHDS +r/a")
	p.ack(vhds)

	p.offer("RDS r: bad", "VHDS r/a: 2")
	p.sends("worse routes", "RDS +r")
	p.nack(rds)
	p.sends("the client goes on with the old, and what lives in them", "VHDS +r/a")
	p.ack(vhds)
	p.offer("RDS r: good 2", "VHDS r/a: 2")
	p.sends("repaired", "RDS +r")
	p.ack(rds)
	p.sends("it may not have taken what it acknowledged", "VHDS +r/a")
}

// TestAClientThatConnectsAgainStatesItsVirtualHosts, before or after its route
// configurations. Virtual hosts that it states of a route configuration that it has are
// not sent again. What it states of any other it has lost.
func TestAClientThatConnectsAgainStatesItsVirtualHosts(t *testing.T) {
	t.Parallel()
	for _, first := range []string{rds, vhds} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			lines := []string{"LDS l: >r", "RDS r: 1", "RDS lost: 1", "VHDS r/a: 1", "VHDS r/b: 2", "VHDS lost/a: 1"}
			p, w := newPlay(t, protocol.Delta), world(t, lines...)
			p.offer(lines...)
			version := func(typeURL, name string) string { return w[typeURL].Value(name).Version }
			requests := map[string]protocol.Request{
				rds:  request(map[string]string{"r": version(rds, "r")}, "r"),
				vhds: request(map[string]string{"r/a": version(vhds, "r/a"), "r/b": "old", "r/gone": "1", "lost/a": version(vhds, "lost/a")}),
			}
			p.sequencer.Request(first, requests[first], p.now)
			p.sends("nothing before both are known")
			second := map[string]string{rds: vhds, vhds: rds}[first]
			p.sequencer.Request(second, requests[second], p.now)
			p.sends("what changed, in one response", "VHDS +r/b -r/gone")
			p.ack(vhds)
			p.ask(rds, "lost")
			p.sends("routes that it does not have", "RDS +lost")
			p.ack(rds)
			p.sends("what it stated of them is sent", "VHDS +lost/a")
		})
	}
}

// TestAllChangesOfAScopeAreOneResponse, so that a domain that moves is never in two
// virtual hosts, and always in one. If one virtual host needs a cluster, its whole scope
// waits, and other scopes do not.
func TestAllChangesOfAScopeAreOneResponse(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.settled("CDS a:", "LDS l: >r >s", "RDS r: 1", "RDS s: 1", "VHDS r/old: x", "VHDS r/c: y", "VHDS s/d: 1")
	p.offer("CDS a:", "LDS l: >r >s", "RDS r: 1", "RDS s: 1", "VHDS r/new: x", "VHDS r/c: y", "VHDS s/d: 1")
	p.sends("together", "VHDS +r/new -r/old")
	p.ack(vhds)
	p.offer("CDS a:", "CDS b:", "LDS l: >r >s", "RDS r: 1", "RDS s: 1", "VHDS r/old: x @b", "VHDS r/e: y", "VHDS s/d: 2")
	p.sends("the other scope", "CDS +b", "VHDS +s/d")
	p.ack(vhds)
	p.sends("not in parts")
	p.ack(cds)
	p.sends("together", "VHDS +r/e +r/old -r/c -r/new")
}

// TestAScopeThatWaitsHasALimit.
func TestAScopeThatWaitsHasALimit(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.settled("LDS l: >r", "RDS r: 1", "VHDS r/a: 1")
	p.offer("CDS b:", "LDS l: >r", "RDS r: 1", "VHDS r/c: @b")
	p.sends("the cluster", "CDS +b")
	p.passes(5 * time.Second)
	p.sends("with all its changes", "VHDS +r/c -r/a")
	if late := p.sequencer.Late(); len(late) != 1 || late[0].Name != "r" || late[0].Missing != "b" {
		t.Errorf("late: %v", late)
	}
}

// TestRoutesThatGoTakeTheirVirtualHostsAlong: virtual hosts are removed after the
// listener. When the route configuration comes back, the client has none of them, so all
// are sent again.
func TestRoutesThatGoTakeTheirVirtualHostsAlong(t *testing.T) {
	t.Parallel()
	all := []string{"LDS l: >r", "RDS r: 1", "VHDS r/a: 1", "VHDS r/b: 1"}
	for _, unsubscribes := range []bool{true, false} { // a client that drains listeners keeps its subscription
		p := newPlay(t, protocol.Delta)
		p.settled(all...)
		p.offer()
		p.sends("the listener alone", "LDS -l")
		p.ack(lds)
		if unsubscribes {
			p.leave(rds, "r")
		}
		p.sends("then they are forgotten", "VHDS -r/a -r/b")
		p.ack(vhds)
		p.offer(all...)
		if unsubscribes {
			p.sends("the listener", "LDS +l")
			p.ask(rds, "r")
			p.sends("the routes", "RDS +r")
		} else {
			p.sends("the listener and its routes", "LDS +l", "RDS +r")
		}
		p.ack(lds, rds)
		p.sends("all of them", "VHDS +r/a +r/b")
	}
}

// TestRoutesGivenUpLoseTheirVirtualHosts: a client that unsubscribes from a route
// configuration keeps only the virtual hosts of the others.
func TestRoutesGivenUpLoseTheirVirtualHosts(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.settled("RDS r: 1", "RDS s: 1", "VHDS r/a: 1", "VHDS s/a: 1")
	p.leave(rds, "r")
	p.sends("forgotten", "VHDS -r/a")
	p.ack(vhds)
	p.offer("RDS r: 1", "RDS s: 1", "VHDS r/a: 2", "VHDS s/a: 2")
	p.sends("of those that it has", "VHDS +s/a")
}

// TestATableThatEmpties: the last virtual host is removed before the route configuration
// that announces none. After that the client would ignore the removal.
func TestATableThatEmpties(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.settled("LDS l: >r", "RDS r: vhds", "VHDS r/a: 1")
	p.offer("LDS l: >r", "RDS r: none")
	p.sends("the host", "VHDS -r/a")
	p.ack(vhds)
	p.sends("the routes", "RDS +r")
	p.ack(rds)
	p.offer("LDS l: >r", "RDS r: vhds", "VHDS r/a: 1")
	p.sends("the routes", "RDS +r")
	p.ack(rds)
	p.sends("the host", "VHDS +r/a")
}

// TestAClusterStaysForAVirtualHost that sends traffic to it.
func TestAClusterStaysForAVirtualHost(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.settled("CDS a:", "CDS b:", "LDS l: >r", "RDS r: 1", "VHDS r/a: @b")
	p.offer("CDS a:", "LDS l: >r", "RDS r: 1", "VHDS r/a: @a")
	p.sends("the host moves", "VHDS +r/a")
	p.nack(vhds)
	p.sends("the client goes on with the old")
	p.now = p.now.Add(time.Minute)
	p.sends("without limit")
	p.offer("CDS a:", "LDS l: >r", "RDS r: 1", "VHDS r/a: @a 2")
	p.sends("a better one", "VHDS +r/a")
	p.ack(vhds)
	p.sends("then the cluster goes", "CDS -b")
}

// TestWhatCameWithRefusedChildrenComesAgain: the client rejects the endpoints of two
// clusters in one response, and one of the clusters is gone by then. The endpoints of the
// other are sent again.
func TestWhatCameWithRefusedChildrenComesAgain(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a: >a", "EDS a: 1", "CDS b: >b", "EDS b: 1")
		p.offer("CDS a: >a", "EDS a: bad", "CDS b: >b", "EDS b: 2")
		p.sends("both", "EDS +a +b")
		p.offer("CDS b: >b", "EDS b: 2")
		p.sends("the cluster goes", "CDS -a")
		p.nack(eds)
		p.sends("the other again", "EDS +b")
	})
}

// TestRoutesThatAreUnknownLoseTheirVirtualHosts: a client that reconnects while it drains
// a listener requests a route configuration that does not exist any more. The server
// removes its virtual hosts first: in an empty route configuration the client would
// ignore their removal. When the route configuration comes back, the client has none of
// them.
func TestRoutesThatAreUnknownLoseTheirVirtualHosts(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.offer("LDS m: 1")
	p.sequencer.Request(lds, request(map[string]string{"l": "1", "m": world(t, "LDS m: 1")[lds].Value("m").Version}), p.now)
	p.sequencer.Request(rds, request(map[string]string{"r": "1"}, "r"), p.now)
	p.sequencer.Request(vhds, request(map[string]string{"r/a": "1", "r/b": "1"}), p.now)
	p.sends("the listener goes", "LDS -l")
	p.ack(lds)
	p.sends("the virtual hosts before the routes", "VHDS -r/a -r/b", "RDS -r")
	p.ack(vhds, rds)
	p.offer("LDS m: 1", "LDS l: >r", "RDS r: vhds", "VHDS r/b: 1")
	p.sends("the listener and its routes", "LDS +l", "RDS +r")
	p.ack(lds, rds)
	p.sends("its virtual host", "VHDS +r/b")
}

// TestATableThatEmptiedWaitsForWhatIsStated: a client that reconnects requests route
// configurations before it states their virtual hosts. Route configurations that should
// have none, and those that do not exist, wait for that request, or for a moment if it
// does not come. Others do not wait.
func TestATableThatEmptiedWaitsForWhatIsStated(t *testing.T) {
	t.Parallel()
	for _, says := range []bool{true, false} {
		p := newPlay(t, protocol.Delta)
		p.offer("LDS k: >full", "LDS l: >r", "RDS full: 2 vhds", "RDS r: none", "VHDS full/a: 1")
		p.ask(lds)
		p.sends("the listeners", "LDS +k +l")
		p.ack(lds)
		p.sequencer.Request(rds, request(map[string]string{"full": "1", "gone": "1", "r": "1"}, "full", "gone", "r"), p.now)
		p.sends("what is not empty", "RDS +full")
		p.ack(rds)
		p.sends("nothing yet")
		if says {
			p.sequencer.Request(vhds, request(map[string]string{"gone/a": "1", "r/a": "1"}), p.now)
			p.sends("the host goes first", "VHDS +full/a -r/a")
			p.ack(vhds)
			p.sends("then the routes", "RDS +r")
			p.ack(rds)
			p.sends("the other too", "VHDS -gone/a", "RDS -gone")
		} else {
			p.passes(limits.Ask)
			p.sends("after a moment", "RDS +r")
			p.ack(rds)
			p.sends("after a moment", "RDS -gone")
		}
	}
}
