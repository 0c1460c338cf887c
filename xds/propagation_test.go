package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// manual opens the stream of a proxy that answers when the test says so.
func manual(t *testing.T, s *xdstest.Server, v protocol.Variant, ip, name string) *xdstest.Client {
	t.Helper()
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{
		Node: xdstest.NewNode("sidecar", ip, name, "shop", nil), Variant: v, Manual: true,
	})
	c.Subscribe(xdstest.ClusterType)
	return c
}

// judged waits until the counts of how proxies took a revision are as wanted.
func judged(t *testing.T, s *xdstest.Server, revision int64, want status.Count) {
	t.Helper()
	xdstest.Eventually(t, fmt.Sprintf("revision %d: %+v", revision, want), func() bool {
		return s.XDS.Progress().Alone(revision) == want
	})
}

// private is a service that the namespace of the tests' proxies does not see.
const private = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: private, namespace: other}
spec:
  hosts: [private.other.example]
  exportTo: ["."]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.9.9.9}]
`

// TestPropagation follows one change after the other among a proxy that answers
// at once and one that answers when it is told to.
func TestPropagation(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		// One proxy requests only clusters. The server need not wait until it requests
		// endpoints.
		s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.ReadyLimit = time.Millisecond })
		first := s.Apply(service("reviews", 9080, "10.1.0.1"))
		quick := dial(t, s, v, nil)
		settled(t, s, first)
		slow := manual(t, s, v, "10.0.0.2", "slow")
		answer := slow.AwaitAnswer(xdstest.ClusterType, 0)
		judged(t, s, first, status.Count{Accepted: 1, Waiting: 1})
		slow.Ack(answer)
		judged(t, s, first, status.Count{Accepted: 2})

		unseen := s.Apply(private)
		judged(t, s, unseen, status.Count{NotConcerned: 2})
		judged(t, s, unseen+100, status.Count{Waiting: 2})

		second := s.Apply(service("ratings", 9080, "10.1.0.9"))
		judged(t, s, second, status.Count{Accepted: 1, Waiting: 1})
		judged(t, s, unseen, status.Count{NotConcerned: 2})
		if d := cmp.Diff(status.Count{NotConcerned: 2}, s.XDS.Progress().All(unseen)); d != "" {
			t.Errorf("all up to the one that nobody sees (-want +got):\n%s", d)
		}
		slow.Nack(slow.AwaitAnswer(xdstest.ClusterType, 1), "outbound|9080||ratings.shop.example is no good")
		judged(t, s, second, status.Count{Accepted: 1, Rejected: 1})
		judged(t, s, first, status.Count{Accepted: 2})

		// A refusal does not keep it from taking another change.
		third := s.Apply(service("details", 9080, "10.1.0.7"))
		other := slow.AwaitAnswer(xdstest.ClusterType, 2)
		judged(t, s, third, status.Count{Accepted: 1, Waiting: 1})
		slow.Ack(other)
		judged(t, s, third, status.Count{Accepted: 2})
		judged(t, s, second, status.Count{Accepted: 1, Rejected: 1})
		if d := cmp.Diff(status.Count{Accepted: 1, Rejected: 1}, s.XDS.Progress().All(third)); d != "" {
			t.Errorf("all up to a change after a refused one (-want +got):\n%s", d)
		}

		// It lacks what came before a revision that does not concern it.
		later := s.Delete(private)
		judged(t, s, later, status.Count{NotConcerned: 2})
		if d := cmp.Diff(status.Count{NotConcerned: 1, Rejected: 1}, s.XDS.Progress().All(later)); d != "" {
			t.Errorf("all up to the last (-want +got):\n%s", d)
		}
		p := s.XDS.Progress()
		report := p.Report("me", 1)
		if last := report.Changes[len(report.Changes)-1]; last.To != later || last.Alone.NotConcerned != 2 || report.Proxies != 2 || len(report.Problems) != 1 {
			t.Errorf("report %+v", report)
		}
		problem := report.Problems[0]
		if problem.Node != "sidecar~10.0.0.2~slow~shop.svc.cluster.local" || !problem.Rejected || problem.RejectedRevision != second || problem.Revision < first || problem.Revision >= second {
			t.Errorf("problem %+v", problem)
		}
		quick.Close()
		slow.Close()
		judged(t, s, second, status.Count{})
	})
}

// TestAcceptedIsWithAllThatFollows: a proxy that has taken a listener or a cluster
// then requests its routes or endpoints, and does not use it before it has these. Only then
// has it accepted the change. It has rejected the change if it rejects the routes or
// endpoints.
func TestAcceptedIsWithAllThatFollows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		variant protocol.Variant
		node    *corev3.Node
	}{
		{"state of the world", protocol.StateOfTheWorld, node("10.0.0.1")},
		{"delta", protocol.Delta, node("10.0.0.1")},
		{"virtual hosts by delta", protocol.Delta, agent("envoy", 1, 40)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.ReadyLimit = time.Hour })
			published(t, s, s.Apply(private))
			p := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: c.node, Variant: c.variant, Manual: true})
			p.Subscribe(xdstest.ClusterType)
			p.Ack(p.AwaitAnswer(xdstest.ClusterType, 0))
			p.Subscribe(xdstest.ListenerType)
			p.Ack(p.AwaitAnswer(xdstest.ListenerType, 0))

			// The first of their types, and then more of them.
			for i, port := range []int{9080, 9081} {
				name := fmt.Sprintf("s%d", i)
				made := s.Apply(service(name, port, "10.1.0.1"))
				p.Ack(p.AwaitAnswer(xdstest.ClusterType, i+1))
				taken(t, s, "CDS", made)
				judged(t, s, made, status.Count{Waiting: 1})
				p.Subscribe(xdstest.EndpointType, fmt.Sprintf("outbound|%d||%s.shop.example", port, name))
				p.Ack(p.AwaitAnswer(xdstest.EndpointType, i))
				p.Ack(p.AwaitAnswer(xdstest.ListenerType, i+1))
				taken(t, s, "LDS", made)
				judged(t, s, made, status.Count{Waiting: 1})
				if i > 0 { // also where it asks when there is another change
					published(t, s, s.Apply(strings.ReplaceAll(private, "9.9.9", "9.9.8")))
				}
				p.Subscribe(xdstest.RouteType, fmt.Sprint(port))
				routes := p.AwaitAnswer(xdstest.RouteType, i)
				judged(t, s, made, status.Count{Waiting: 1})
				if c.node.GetUserAgentName() == "" {
					p.Nack(routes, "no good")
					judged(t, s, made, status.Count{Rejected: 1})
					continue
				}
				p.Ack(routes)
				if i == 0 {
					p.Subscribe(xdstest.VirtualHostType)
				}
				p.Nack(p.AwaitAnswer(xdstest.VirtualHostType, i), "no good")
				judged(t, s, made, status.Count{Rejected: 1})
			}
		})
	}
}

// taken waits until the only proxy has acknowledged a revision of a type.
func taken(t *testing.T, s *xdstest.Server, typ string, revision int64) {
	t.Helper()
	xdstest.Eventually(t, fmt.Sprintf("%s of revision %d to be taken", typ, revision), func() bool {
		for _, one := range s.XDS.Proxies()[0].Types {
			if one.Name == typ {
				return one.AckedRevision >= revision
			}
		}
		return false
	})
}

// TestRejectionsNameTheirObjects: the server finds the resource that the proxy rejects, and
// its metadata names the object.
func TestRejectionsNameTheirObjects(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.ReadyLimit = time.Millisecond }) // it never asks for endpoints
	revision := s.Apply(service("reviews", 9080, "10.1.0.1"), service("ratings", 9080, "10.1.0.2"), subsets)
	xdstest.Eventually(t, "all is published", func() bool { return s.XDS.Context().Revision() >= revision })
	c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{
		Node: node("10.0.0.3"), Variant: protocol.Delta, Refuse: refusing("outbound|9080|v1|reviews.shop.example", "bad"),
	})
	c.Subscribe(xdstest.ClusterType)
	var problems []status.Problem
	xdstest.Eventually(t, "the rejection is known", func() bool {
		problems = s.XDS.Progress().Problems(10)
		return len(problems) == 1 && problems[0].Rejected
	})
	if want := []string{"networking.istio.io/DestinationRule/shop/reviews"}; !slices.Equal(problems[0].Objects, want) {
		t.Errorf("objects %v, want %v", problems[0].Objects, want)
	}
	if p := s.XDS.Proxies()[0]; p.StaleSince.IsZero() || p.Types[0].RejectedNonce == "" || !slices.Equal(p.Types[0].Objects, []string{"destinationrule/shop/reviews"}) {
		t.Errorf("status %+v", p)
	}
	if held := c.Held(xdstest.ClusterType); len(held) < 2 {
		t.Errorf("besides what it refuses it has %v", held)
	}
	s.Delete(subsets)
	xdstest.Eventually(t, "nothing is refused any more", func() bool {
		return len(s.XDS.Progress().Problems(10)) == 0 || s.XDS.Proxies()[0].Types[0].State == protocol.Stale
	})
}

// refusing makes a client reject each response that has a resource, with the given words.
func refusing(name, words string) func(*xdstest.Answer) string {
	return func(a *xdstest.Answer) string {
		if _, has := a.Resources[name]; has {
			return words
		}
		return ""
	}
}
