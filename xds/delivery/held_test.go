package delivery_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestARouteWaitsForItsCluster until the client has acknowledged the cluster and
// its endpoints, in whichever order; other changes go on.
func TestARouteWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	for _, first := range []string{cds, eds} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			inVariants(t, func(t *testing.T, p *play) {
				p.settled("CDS a: >a", "EDS a: 1", "RDS r: @a", "RDS s: @a")
				p.offer("CDS a: >a", "EDS a: 1", "CDS b: >b", "EDS b: 1", "RDS r: @a @b", "RDS s: @a 2")
				p.sends("the cluster, and what does not need it", "CDS +b", "RDS +s")
				p.ack(rds)
				p.ask(eds, "b")
				p.sends("its endpoints", "EDS +b")
				p.ack(first)
				p.sends("one of both is not enough")
				p.ack(map[string]string{cds: eds, eds: cds}[first])
				p.sends("the route", "RDS +r")
				p.ack(rds)
				if late := p.sequencer.Late(); len(late) > 0 || !p.sequencer.Wake().IsZero() {
					t.Errorf("late: %v, wakes at %v", late, p.sequencer.Wake())
				}
			})
		})
	}
}

// TestClustersWithoutEndpointsAreThereWhenTaken: a static cluster is usable once it is
// acknowledged, one with host names a moment later.
func TestClustersWithoutEndpointsAreThereWhenTaken(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("RDS r: 1", "RDS s: 1")
		p.offer("CDS static:", "CDS name: dns", "RDS r: @static", "RDS s: @name")
		p.sends("clusters", "CDS +name +static")
		p.ack(cds)
		p.sends("the one that needs no more", "RDS +r")
		p.ack(rds)
		p.passes(200 * time.Millisecond)
		p.sends("the other", "RDS +s")
	})
}

// TestAListenerWaitsForItsCluster: in state of the world the response of the other
// listeners repeats the old form of the waiting one, and omits a new one that waits.
func TestAListenerWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a:", "LDS l: @a", "LDS m: @a")
		p.offer("CDS a:", "CDS b:", "LDS l: @b", "LDS m: @a 2", "LDS n: @b")
		p.sends("the cluster, and the other listener", "CDS +b", "LDS +m")
		if p.variant == protocol.StateOfTheWorld {
			want := sets{}
			want[lds] = world(t, "LDS l: @a", "LDS m: @a 2")[lds]
			got := map[string]string{}
			for _, r := range p.last[lds].Resources {
				got[r.Name] = r.Version
			}
			if d := cmp.Diff(map[string]string{"l": want[lds].Value("l").Version, "m": want[lds].Value("m").Version}, got); d != "" {
				t.Errorf("listeners (-want +got):\n%s", d)
			}
		}
		p.ack(lds)
		p.sends("nothing before the cluster is there")
		p.ack(cds)
		p.sends("then the listeners", "LDS +l +n")
		p.ack(lds)
		p.sends("and that is all")
	})
}

// TestNothingWaitsForWhatTheClientDoesNotAskFor: a gRPC client requests a cluster only
// once it has the route. A route may also name a cluster that does not exist.
func TestNothingWaitsForWhatTheClientDoesNotAskFor(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.offer("CDS a: >a", "EDS a: 1", "CDS b: >b", "EDS b: 1", "RDS r: @a")
		p.ask(rds, "r")
		p.sends("no cluster was asked for", "RDS +r")
		p.ack(rds)
		p.ask(cds, "a")
		p.sends("by name", "CDS +a")
		p.ack(cds)
		p.offer("CDS a: >a", "EDS a: 1", "CDS b: >b", "EDS b: 1", "RDS r: @b @unknown")
		p.sends("nor was this one", "RDS +r")
	})
}

// TestEndpointsGoBeforeTheRoute, if those of a cluster change that the client has
// already.
func TestEndpointsGoBeforeTheRoute(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a: >a", "EDS a: 1", "CDS b: >b", "EDS b: 1", "RDS r: @a")
		p.offer("CDS a: >a", "EDS a: 2", "CDS b: >b", "EDS b: 1", "RDS r: @a")
		p.sends("some endpoints", "EDS +a")
		p.offer("CDS a: >a", "EDS a: 2", "CDS b: >b", "EDS b: 2", "RDS r: @b")
		p.sends("those of the other cannot go yet")
		p.ack(eds)
		p.sends("then in order", "EDS +b", "RDS +r")
	})
}

// TestTheWaitHasALimit: a resource that passes the limit is reported as late, and its
// next change waits anew.
func TestTheWaitHasALimit(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("RDS r: 1")
		p.offer("CDS b:", "RDS r: @b")
		p.sends("the cluster", "CDS +b")
		if additions, _ := p.sequencer.Waiting(rds); additions != 1 {
			t.Errorf("%d wait", additions)
		}
		p.now = p.now.Add(4 * time.Second)
		p.offer("CDS b:", "RDS r: @b 2") // waits on, as it did
		p.sends("nothing")
		p.passes(time.Second)
		p.sends("in its newest form", "RDS +r")
		want := []delivery.Late{{TypeURL: rds, Name: "r", Missing: "b"}}
		if d := cmp.Diff(want, p.sequencer.Late()); d != "" {
			t.Errorf("late (-want +got):\n%s", d)
		}
		p.ack(rds)
		p.offer("CDS b:", "RDS r: @b 3")
		p.sends("it waits again")
		p.ack(cds)
		p.sends("and not for long", "RDS +r")
		if additions, _ := p.sequencer.Waiting(rds); additions != 0 || p.sequencer.Late() != nil {
			t.Errorf("%d wait", additions)
		}
	})
}

// TestARefusedClusterKeepsItsRoutesWaiting, until the cluster is repaired or the limit
// has passed. Meanwhile the client uses the old route.
func TestARefusedClusterKeepsItsRoutesWaiting(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a: >a", "EDS a: 1", "RDS r: @a")
		p.offer("CDS a: >a", "EDS a: 1", "CDS bad:", "RDS r: @bad")
		p.sends("the cluster", "CDS +bad")
		p.nack(cds)
		p.sends("no loop, and no route")
		p.offer("CDS a: >a", "EDS a: 1", "CDS bad: repaired", "RDS r: @bad")
		p.sends("the repaired cluster", "CDS +bad")
		p.ack(cds)
		p.sends("its route", "RDS +r")
		p.ack(rds)
		p.offer("CDS a: >a", "EDS a: 1", "CDS bad: repaired", "CDS worse:", "RDS r: @worse")
		p.sends("another", "CDS +worse")
		p.nack(cds)
		p.sends("no loop")
		p.passes(5 * time.Second)
		p.sends("the limit has passed", "RDS +r")
	})
}

// TestARefusedClusterThatIsGoneHoldsNothingBack.
func TestARefusedClusterThatIsGoneHoldsNothingBack(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("RDS r: 1")
		p.offer("CDS bad:", "RDS r: @bad")
		p.sends("the cluster", "CDS +bad")
		p.nack(cds)
		p.offer("RDS r: @bad 2")
		p.sends("there is no such cluster", "RDS +r", "CDS -bad")
	})
}

// TestAClusterThatComesBackIsNewAgain, also if it comes back while its removal is in
// flight.
func TestAClusterThatComesBackIsNewAgain(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a:", "CDS b:", "RDS r: @a")
		p.offer("CDS a:", "RDS r: @a")
		p.sends("it goes", "CDS -b")
		p.offer("CDS a:", "CDS b:", "RDS r: @b")
		p.sends("it cannot come before it has gone")
		p.ack(cds)
		p.sends("it comes", "CDS +b")
		p.ack(cds)
		p.sends("the route", "RDS +r")
	})
}

// TestAClusterThatComesBackMeanwhile: a cluster is gone and back before anything of it is
// sent. It still is not usable before its endpoints are acknowledged.
func TestAClusterThatComesBackMeanwhile(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		inVariants(t, func(t *testing.T, p *play) {
			with := []string{"CDS a:", "CDS b: >b", "EDS b: 1", "RDS r: @b"}
			p.settled("CDS a:", "RDS r: 1")
			p.ask(eds, "unknown")
			p.sends("an answer", "EDS +unknown")
			p.ack(eds)
			p.offer(with...)
			p.sends("it comes", "CDS +b")
			if taken {
				p.ack(cds)
			}
			p.offer("CDS a:", "RDS r: 1")
			p.offer(with...)
			if !taken {
				p.ack(cds)
			}
			for typeURL, r := range p.sequencer.Responses(p.now) {
				if p.nonces[typeURL] = r.Nonce; typeURL != cds {
					t.Errorf("%s goes before the endpoints", typeURL)
				}
			}
			p.ask(eds, "b")
			p.sends("its endpoints", "EDS +b")
			p.ack(eds)
			if p.sequencer.Subscription(cds).InFlight() { // it may be sent again
				p.ack(cds)
			}
			p.sends("then the route", "RDS +r")
		})
	}
}

// TestOlderEndpointsDoNotMakeAClusterReady: endpoints that were in flight before the
// cluster do not make it usable, only those sent after it do.
func TestOlderEndpointsDoNotMakeAClusterReady(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.offer("EDS b: 0", "RDS r: 1")
		p.ask(cds)
		p.ask(rds, "r")
		p.sends("what there is", "CDS", "RDS +r")
		p.ack(cds, rds)
		p.offer("CDS b: >b", "EDS b: 1", "RDS r: @b")
		p.sends("the cluster", "CDS +b")
		p.nack(cds)
		p.ask(eds, "b")
		p.sends("endpoints that nobody waits for", "EDS +b")
		p.offer("CDS b: >b 2", "EDS b: 1", "RDS r: @b")
		p.sends("the repaired cluster", "CDS +b")
		p.ack(eds, cds)
		p.sends("endpoints for it", "EDS +b")
		p.ack(eds)
		p.sends("the route", "RDS +r")
	})
}
