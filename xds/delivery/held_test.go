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

// TestClustersWithoutEndpointsAreThereWhenTaken: static ones at once, those that
// resolve after a moment.
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

// TestAListenerWaitsForItsCluster: in state of the world the others go out with
// its old form, and without it where it is new.
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

// TestNothingWaitsForWhatTheClientDoesNotAskFor: one of gRPC asks for a cluster
// when it has the route; and a cluster may not be there at all.
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

// TestEndpointsGoBeforeTheRoute: of a cluster that the client has already.
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

// TestTheWaitHasALimit, is reported, and begins anew with the next change.
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

// TestARefusedClusterKeepsItsRoutesWaiting, until it is repaired or the limit has
// passed. The old route serves on.
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

// TestAClusterThatComesBackIsNewAgain, also while it is being taken away.
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

// TestAClusterThatComesBackMeanwhile: it was gone for a moment in which the
// client was told nothing, and is not there before its endpoints are.
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

// TestOlderEndpointsDoNotMakeAClusterReady: those that are under way when the
// cluster goes out are not what it waits for.
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
