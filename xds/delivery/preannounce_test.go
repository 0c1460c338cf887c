package delivery_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
)

// twoClusters are the clusters of the tests below. The first routes lead to a.
var twoClusters = []string{"CDS a: >a", "EDS a: 1", "CDS b: >b", "EDS b: 1"}

// routed returns a client that has routes to cluster a, and then requested and took the
// cluster and its endpoints.
func routed(t *testing.T) *play {
	t.Helper()
	p := newPlayOf(t, protocol.StateOfTheWorld, announcing())
	p.offer(append(twoClusters, "RDS r: @a")...)
	p.ask(rds, "r")
	p.sends("the first routes lead anywhere", "RDS +r")
	p.ack(rds)
	p.fetches("a")
	p.sends("and that is all")
	return p
}

// fetches makes the client request a cluster and its endpoints, and acknowledge them.
func (p *play) fetches(name string) {
	p.t.Helper()
	p.ask(cds, name)
	p.sends("a cluster that was asked for", "CDS +"+name)
	p.ack(cds)
	p.ask(eds, name)
	p.sends("its endpoints", "EDS +"+name)
	p.ack(eds)
}

// routes takes the response that goes now: routes with this content.
func (p *play) routes(what, want string) {
	p.t.Helper()
	p.sends(what, "RDS +r")
	if got := content(p.last[rds].Resources[0]); got != want {
		p.t.Errorf("%s: the routes are %q, want %q", what, got, want)
	}
}

// TestClustersAreAnnounced to a client that has routes. Traffic goes where it went until
// the client has the new clusters and their endpoints.
func TestClustersAreAnnounced(t *testing.T) {
	t.Parallel()
	p := routed(t)
	p.sequencer.SetDesired(world(t, append(twoClusters, "RDS r: @b")...).of, 2)
	p.routes("the cluster is announced", " @a ~b")
	p.ack(rds)
	if s := p.sequencer.Subscription(rds).Status(); s.State != protocol.Stale || s.AckedRevision != 1 {
		t.Errorf("the client is %s, at revision %d", s.State, s.AckedRevision)
	}
	p.sends("nothing before it is asked for")
	p.ask(cds, "b")
	p.sends("the cluster", "CDS +b")
	p.ask(eds, "b")
	p.sends("its endpoints", "EDS +b")
	p.ack(cds)
	p.sends("which are not there yet")
	p.ack(eds)
	p.routes("the routes", " @b")
	p.ack(rds)
	p.leave(cds, "a")
	p.leave(eds, "a")
	p.sends("and that is all")
	if s := p.sequencer.Subscription(rds).Status(); s.State != protocol.Synced || s.AckedRevision != 2 {
		t.Errorf("the client is %s, at revision %d", s.State, s.AckedRevision)
	}
	if late := p.sequencer.Late(); len(late) > 0 {
		t.Errorf("late: %v", late)
	}
}

// TestAnAnnouncementFollowsTheRoutes if these change once more.
func TestAnAnnouncementFollowsTheRoutes(t *testing.T) {
	t.Parallel()
	more := append([]string{"CDS c: >c", "EDS c: 1"}, twoClusters...)
	p := routed(t)
	p.offer(append(more, "RDS r: @b")...)
	p.routes("the cluster is announced", " @a ~b")
	p.ack(rds)
	p.offer(append(more, "RDS r: @b @c")...)
	p.routes("and the next", " @a ~b ~c")
	p.ack(rds)
	p.fetches("b")
	p.offer(append(more, "RDS r: @a 2")...)
	p.sends("the client does not use yet what it has")
	p.fetches("c")
	p.routes("nothing more is to be told", " @a 2")
	p.ack(rds)
	p.sends("and that is all")
}

// TestARouteToNowhereIsNotAnnounced: there is no cluster that the client could request.
func TestARouteToNowhereIsNotAnnounced(t *testing.T) {
	t.Parallel()
	p := routed(t)
	p.offer(append(twoClusters, "RDS r: @unknown")...)
	p.routes("the routes", " @unknown")
}

// TestAClientThatDoesNotAskForAClusterGetsItsRoutes after the limit.
func TestAClientThatDoesNotAskForAClusterGetsItsRoutes(t *testing.T) {
	t.Parallel()
	p := routed(t)
	p.offer(append(twoClusters, "RDS r: @b")...)
	p.routes("the cluster is announced", " @a ~b")
	p.ack(rds)
	p.sends("it is waited for")
	p.passes(limits.Ready)
	p.routes("not for ever", " @b")
	if d := cmp.Diff([]delivery.Late{{TypeURL: rds, Name: "r", Missing: "b"}}, p.sequencer.Late()); d != "" {
		t.Errorf("late (-want +got):\n%s", d)
	}
	p.ack(rds)
	p.sends("and that is all")
}

// TestRefusedRoutesAreNotAnnouncedAgain, but the next good ones are.
func TestRefusedRoutesAreNotAnnouncedAgain(t *testing.T) {
	t.Parallel()
	p := routed(t)
	p.offer(append(twoClusters, "RDS r: bad @a")...)
	p.routes("routes to what is known", " bad @a")
	p.nack(rds)
	p.sends("nothing is sent again")
	p.offer(append(twoClusters, "RDS r: @b")...)
	p.routes("the client has the first", " @a ~b")
	p.nack(rds)
	p.routes("it refuses to be told, and is not told again", " @b")
	p.nack(rds)
	p.sends("nor is it sent again")
	if s := p.sequencer.Subscription(rds).Status(); s.State != protocol.Rejected {
		t.Errorf("the client is %s", s.State)
	}
	p.offer(append(twoClusters, "RDS r: @b 2")...)
	p.routes("the next is announced", " @a ~b")
	p.ack(rds)
	p.fetches("b")
	p.routes("and sent", " @b 2")
	p.ack(rds)
	if s := p.sequencer.Subscription(rds).Status(); s.State != protocol.Synced {
		t.Errorf("the client is %s", s.State)
	}
}

// TestTheFirstRoutesAreNotAnnounced: the server does not know routes that the client has
// from another server.
func TestTheFirstRoutesAreNotAnnounced(t *testing.T) {
	t.Parallel()
	p := newPlayOf(t, protocol.StateOfTheWorld, announcing())
	p.offer(append(twoClusters, "RDS r: @b")...)
	p.ask(cds, "a")
	p.sends("the cluster that it has", "CDS +a")
	p.ack(cds)
	p.sequencer.Request(rds, protocol.Request{Names: protocoltest.NameSet("r"), Version: "another"}, p.now)
	p.asked[rds] = map[string]bool{"r": true}
	p.routes("the routes", " @b")
}

// TestAClusterIsGivenUpByItsClient if no routes name it any more. The client stays
// subscribed until its calls to the cluster are done.
func TestAClusterIsGivenUpByItsClient(t *testing.T) {
	t.Parallel()
	moved := func(t *testing.T) *play {
		p := routed(t)
		p.offer("CDS b: >b", "EDS b: 1", "RDS r: @b")
		p.routes("the cluster is announced", " @a ~b")
		p.ack(rds)
		p.fetches("b")
		p.routes("the routes", " @b")
		p.ack(rds)
		p.sends("the cluster that is gone stays")
		return p
	}
	t.Run("when it is done", func(t *testing.T) {
		t.Parallel()
		p := moved(t)
		p.leave(cds, "a")
		p.leave(eds, "a")
		p.sends("nothing is left")
		if _, withdrawals := p.sequencer.Waiting(cds); withdrawals > 0 {
			t.Errorf("%d wait to be withdrawn", withdrawals)
		}
	})
	t.Run("or after the limit", func(t *testing.T) {
		t.Parallel()
		p := moved(t)
		p.passes(limits.Withdraw)
		p.sends("it is told", "CDS -a")
	})
	t.Run("at once where routes lead there", func(t *testing.T) {
		t.Parallel()
		p := routed(t)
		p.offer("CDS b: >b", "EDS b: 1", "RDS r: @a")
		p.sends("calls are to fail", "CDS -a")
	})
}
