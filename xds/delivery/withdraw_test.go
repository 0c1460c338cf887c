package delivery_test

import (
	"fmt"
	"testing"
	"time"
)

// TestAClusterIsWithdrawnAfterTheRoutesMoved: it waits for the ACK of the routes that
// named it, and not for other traffic.
func TestAClusterIsWithdrawnAfterTheRoutesMoved(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a:", "CDS b:", "CDS c:", "RDS r: @b", "RDS s: @a", "LDS l: @a")
		p.offer("CDS a:", "CDS b:", "CDS c:", "RDS r: @b", "RDS s: @a 2", "LDS l: @a 2")
		p.sends("traffic that is not of b or c", "LDS +l", "RDS +s")
		p.offer("CDS a:", "CDS b:", "RDS r: @b", "RDS s: @a 2", "LDS l: @a 2")
		p.sends("nothing has ever named c", "CDS -c")
		p.ack(cds)
		p.offer("CDS a:", "RDS r: @a", "RDS s: @a 2", "LDS l: @a 2")
		p.sends("routes are under way already")
		p.ack(rds)
		p.sends("the route moves", "RDS +r")
		p.ack(lds)
		p.sends("the client may still have the old one")
		p.ack(rds)
		p.sends("then the cluster goes", "CDS -b")
	})
}

// TestWhatRefusedRoutesLeadToIsKept: clusters of the old routes stay as long as the
// client refuses the new ones.
func TestWhatRefusedRoutesLeadToIsKept(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a:", "CDS b: >b", "EDS b: 1", "CDS c:", "RDS r: @b")
		p.offer("CDS a:", "RDS r: @a bad")
		p.sends("the route moves; nothing names c", "RDS +r", "CDS -c")
		p.nack(rds)
		p.ack(cds)
		p.sends("the client goes on with the old")
		for _, typeURL := range []string{cds, eds} {
			if _, kept := p.sequencer.Waiting(typeURL); kept != 1 {
				t.Errorf("%d of %s are kept", kept, typeURL)
			}
			if !p.sequencer.OnlyKeptRemovals(typeURL) {
				t.Errorf("%s is not stuck", typeURL)
			}
		}
		p.offer("CDS a:", "CDS d: >d", "EDS d: 1", "RDS r: @a bad")
		p.sends("another cluster", "CDS +d")
		if p.sequencer.OnlyKeptRemovals(cds) {
			t.Error("it is not all there is to be taken")
		}
		p.ack(cds)
		p.sends("nothing")
		p.now = p.now.Add(time.Minute)
		p.sends("without limit")
		if at := p.sequencer.Wake(); !at.IsZero() {
			t.Errorf("it wakes at %v for nothing", at)
		}
		p.offer("CDS a:", "CDS d: >d", "EDS d: 1", "RDS r: @a good")
		p.sends("a better route", "RDS +r")
		p.ack(rds)
		p.sends("then the cluster goes", "CDS -b")
	})
}

// TestWithdrawalHasALimit: neither a client that does not answer nor ever new changes
// keep a cluster for ever.
func TestWithdrawalHasALimit(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a:", "CDS b:", "RDS r: @b")
		p.offer("CDS a:", "RDS r: @a")
		p.sends("the route moves", "RDS +r")
		if p.sequencer.OnlyKeptRemovals(cds) {
			t.Error("what is kept for a while is stuck")
		}
		p.passes(10 * time.Second)
		p.sends("it was not answered", "CDS -b")
		p.ack(rds, cds)

		p.offer("CDS x0:", "RDS r: 2")
		p.sends("", "CDS +x0", "RDS +r")
		p.ack(rds)
		for i := 1; ; i++ { // another cluster whenever the last was taken
			p.offer(fmt.Sprintf("CDS x%d:", i), "RDS r: 2")
			p.ack(cds)
			sent := false
			for typeURL, r := range p.sequencer.Responses(p.now) {
				p.nonces[typeURL] = r.Nonce
				_, sent = r.Withdrawn["a"]
			}
			if sent {
				break
			}
			if p.now = p.now.Add(time.Second); i > 11 {
				t.Fatal("the cluster is never withdrawn")
			}
		}
	})
}

// TestAListenerIsWithdrawnAfterWhatStandsInForIt: the new listener may wait for clusters
// and routes first.
func TestAListenerIsWithdrawnAfterWhatStandsInForIt(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a:", "LDS old: @a")
		p.offer("CDS a:", "CDS b:", "LDS new: @b >r", "RDS r: @b")
		p.sends("the cluster", "CDS +b")
		p.ack(cds)
		p.sends("the new listener", "LDS +new")
		p.ask(rds, "r")
		p.sends("its routes", "RDS +r")
		p.ack(lds)
		p.sends("it waits for them")
		p.ack(rds)
		p.sends("then the old one goes, and its cluster stays", "LDS -old")
	})
}

// TestChildrenGoWithTheirParents: a draining listener goes on with its routes, and a
// cluster with its endpoints. The server does not remove these before.
func TestChildrenGoWithTheirParents(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a: >a", "EDS a: 1", "CDS b: >b", "EDS b: 1", "LDS l: >r", "RDS r: @a", "LDS m: >s", "RDS s: @b")
		p.offer("CDS b: >b", "EDS b: 1", "LDS m: >s", "RDS s: @b")
		p.sends("neither endpoints nor routes", "LDS -l", "CDS -a")
		p.ack(lds, cds)
		p.leave(eds, "a")
		p.leave(rds, "r")
		p.sends("no more")
		p.offer("CDS b: otherwise", "LDS m: >s", "RDS s: @b")
		p.sends("a cluster that needs no endpoints any more", "CDS +b")
		p.ack(cds)
		p.sends("gives them up by itself")
	})
}

// TestWhatWasStatedIsKeptUntilTheRestIsAskedFor: a client that reconnects may request
// clusters before the routes that name them.
func TestWhatWasStatedIsKeptUntilTheRestIsAskedFor(t *testing.T) {
	t.Parallel()
	p := newPlay(t, 1)
	p.offer("CDS a:", "LDS l: >r", "RDS r: @a")
	p.sequencer.Request(cds, request(map[string]string{"a": world(t, "CDS a:")[cds].Value("a").Version, "old": "1"}), p.now)
	p.sends("the routes may name the old cluster")
	p.sequencer.Request(lds, request(map[string]string{"l": world(t, "LDS l: >r")[lds].Value("l").Version}), p.now)
	p.sequencer.Request(rds, request(map[string]string{"r": "1"}, "r"), p.now)
	p.sends("and they do, but something may live in them")
	p.sequencer.Request(vhds, request(nil), p.now)
	p.sends("nothing does", "RDS +r", "VHDS")
	p.ack(rds)
	p.sends("it goes when they have moved", "CDS -old")
}
