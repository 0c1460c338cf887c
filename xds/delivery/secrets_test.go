package delivery_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestARotatedSecretGoesAlone: the resources that need it are not sent again.
func TestARotatedSecretGoesAlone(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		rest := []string{"CDS a: >a $s", "EDS a: 1", "LDS l: $s @a", "LDS m: $s"}
		p.settled(append(rest, "SDS s: 1")...)
		p.offer(append(rest, "SDS s: 2")...)
		p.sends("the secret", "SDS +s")
		p.ack(sds)
		p.sends("nothing more")
	})
}

// TestTrafficWaitsForEndpointsAndSecrets: a new cluster gets traffic once the client has
// acknowledged all that it needs, in whatever order.
func TestTrafficWaitsForEndpointsAndSecrets(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{eds, sds}, {sds, eds}} {
		t.Run(order[0]+" first", func(t *testing.T) {
			t.Parallel()
			inVariants(t, func(t *testing.T, p *play) {
				p.settled("CDS a: >a", "EDS a: 1", "LDS l: @a")
				p.offer("CDS a: >a", "EDS a: 1", "CDS b: >b $s", "EDS b: 1", "SDS s: 1", "LDS l: @b")
				p.sends("the cluster", "CDS +b")
				p.ack(cds)
				p.sends("nothing before it has what it needs")
				name := map[string]string{eds: "b", sds: "s"}
				for _, typeURL := range order {
					p.ask(typeURL, name[typeURL])
					p.sends("what it needs", typeURL+" +"+name[typeURL])
					p.sends("nothing before it is taken")
					p.ack(typeURL)
				}
				p.sends("the traffic", "LDS +l")
			})
		})
	}
}

// TestAFirstSyncWaitsForItsSecrets: all listeners go in one response, also those that
// send no traffic to a cluster with a secret.
func TestAFirstSyncWaitsForItsSecrets(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.offer("CDS a: 1", "CDS b: $s", "SDS s: 1", "LDS l: @a", "LDS m: @b")
		p.ask(cds)
		p.ask(lds)
		p.sends("the clusters", "CDS +a +b")
		p.ack(cds)
		p.sends("nothing before the secret is requested")
		p.ask(sds, "s")
		p.sends("the secret", "SDS +s")
		p.ack(sds)
		p.sends("all listeners", "LDS +l +m")
	})
}

// TestASecretThatIsThereIsNotWaitedFor, nor sent again.
func TestASecretThatIsThereIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	p.settled("CDS a: $s", "SDS s: 1", "LDS l: @a")
	p.offer("CDS a: $s", "CDS b: $s", "SDS s: 1", "LDS l: @b")
	p.sends("another cluster", "CDS +b")
	p.ack(cds)
	p.sends("the traffic", "LDS +l")
}

// TestASecretThatGoesIsKeptForWhatNeedsIt: a cluster in flight waits for the secret.
func TestASecretThatGoesIsKeptForWhatNeedsIt(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a: 1", "SDS other: 1")
		p.offer("CDS a: 1", "CDS b: $s", "SDS s: 1", "SDS other: 1")
		p.sends("the cluster", "CDS +b")
		p.offer("CDS a: 1", "CDS b: 2", "SDS other: 1")
		p.ask(sds, "s")
		p.sends("the secret that it waits for", "SDS +s")
		p.ack(sds, cds)
		p.sends("the cluster that needs it no more", "CDS +b")
		p.ack(cds)
		p.leave(sds, "s")
		p.sends("nothing more")
		if s := p.sequencer.Subscription(sds); s.Desired("s") != nil {
			t.Error("the secret is still desired")
		}
	})
}

// TestANeedThatIsNotServedIsNotWaitedFor: an Envoy may have secrets from its own machine.
func TestANeedThatIsNotServedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	var served []delivery.Type
	for _, typ := range types() {
		if typ.URL != sds {
			served = append(served, typ)
		}
	}
	p := newPlayOf(t, protocol.Delta, served)
	p.offer("CDS a: $s", "LDS l: @a")
	p.ask(cds)
	p.ask(lds)
	p.sends("the cluster", "CDS +a")
	p.ack(cds)
	p.sends("the traffic", "LDS +l")
}

// TestAStatedClusterMayNotBeInUse: the client may lack endpoints that its stated form
// needs, and not only those of the next form.
func TestAStatedClusterMayNotBeInUse(t *testing.T) {
	t.Parallel()
	p := newPlay(t, protocol.Delta)
	was := []string{"CDS a: >a", "EDS a: 1"}
	p.offer(was...)
	p.sequencer.Request(cds, request(map[string]string{"a": world(t, was...)[cds].Value("a").Version}), p.now)
	p.ask(eds, "a")
	p.ask(lds)
	p.offer("CDS a: >a $s", "EDS a: 1", "SDS s: 1")
	p.sends("the next form, and what it lacks", "CDS +a", "EDS +a")
	p.ack(eds)
	p.offer("CDS a: >a", "EDS a: 1", "LDS l: @a")
	p.sends("no traffic before the next form is in use", "EDS +a")
}

// TestNothingLeadsToAClusterWhoseSecretWasRejected, while a form of the cluster is due
// that does without the secret.
func TestNothingLeadsToAClusterWhoseSecretWasRejected(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		p.settled("CDS a: 1", "SDS other: 1", "LDS l: @a")
		p.offer("CDS a: 1", "CDS b: $s", "SDS s: 1", "SDS other: 1", "LDS l: @a")
		p.sends("the cluster", "CDS +b")
		p.ask(sds, "s")
		p.sends("its secret", "SDS +s")
		p.nack(sds)
		p.ack(cds)
		p.offer("CDS a: 1", "CDS b: 2", "SDS other: 1", "LDS l: @b")
		p.sends("a form without the secret", "CDS +b")
		p.ack(cds)
		p.sends("the traffic, and that the secret is gone", "LDS +l", "SDS")
	})
}
