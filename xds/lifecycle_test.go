package xds_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestNotReadyIsRefused: the server refuses streams until it has read everything, so that
// proxies keep what they have. Then it serves them.
func TestNotReadyIsRefused(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		var synced atomic.Bool
		s := starting(t, synced.Load)
		s.handle(1)
		s.Commit()
		early := xdstest.Dial(t, s.address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
		early.Subscribe(xdstest.ClusterType)
		if err := early.AwaitEnd(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not ready") {
			t.Errorf("the stream ended with %v", err)
		}
		if s.Ready() == nil {
			t.Error("ready before it is synced")
		}
		synced.Store(true)
		<-s.Published()
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
		late := xdstest.Dial(t, s.address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
		late.Subscribe(xdstest.ClusterType)
		late.AwaitAnswer(xdstest.ClusterType, 0)
	})
}

// TestShutdownEndsStreams that are idle, that have a response in flight, whose client has
// sent nothing, and whose client never reads. Run waits for them, and lets no more begin.
func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := starting(t, func() bool { return true })
		s.handle(1)
		s.Commit()
		<-s.Published()
		idle := xdstest.Dial(t, s.address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
		idle.Subscribe(xdstest.ClusterType)
		idle.AwaitAnswer(xdstest.ClusterType, 0)
		mute := xdstest.Dial(t, s.address, xdstest.ClientOptions{Node: node("10.0.0.2"), Variant: v, Manual: true})
		mute.Subscribe(xdstest.ClusterType)
		mute.AwaitAnswer(xdstest.ClusterType, 0)
		silent := xdstest.Dial(t, s.address, xdstest.ClientOptions{Node: node("10.0.0.3"), Variant: v})
		s.stop()
		for who, c := range map[string]*xdstest.Client{"idle": idle, "mute": mute, "silent": silent} {
			if err := c.AwaitEnd(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopping") {
				t.Errorf("the stream of the %s client ended with %v", who, err)
			}
		}
		again := xdstest.Dial(t, s.address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v})
		again.Subscribe(xdstest.ClusterType)
		if err := again.AwaitEnd(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream after the end ended with %v", err)
		}
		if n := len(s.Proxies()); n != 0 {
			t.Errorf("%d proxies are connected after the end", n)
		}
	})
}

// TestPushesMergeWhileOneIsUnderWay: all changes before a proxy has answered come in one
// response afterwards, at the newest revision. What came and went in between is not in it.
func TestPushesMergeWhileOneIsUnderWay(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		published(t, s, s.Apply(service("a", 9080, "10.1.0.1")))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		c.Subscribe(xdstest.ClusterType)
		first := c.AwaitAnswer(xdstest.ClusterType, 0)
		c.Subscribe(xdstest.EndpointType, "outbound|9080||mark.shop.example")
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 0))

		published(t, s, s.Apply(service("b", 9080, "10.1.0.1"), service("gone", 9080, "10.1.0.1")))
		published(t, s, s.Delete(service("gone", 9080, "10.1.0.1")))
		last := s.Apply(service("c", 9080, "10.1.0.1"), service("mark", 9080, "10.1.0.1"))
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 1)) // the proxy was offered all of it
		if n := len(c.Answers(xdstest.ClusterType)); n != 1 {
			t.Fatalf("%d answers before the first was taken", n)
		}
		c.Ack(first)
		second := c.AwaitAnswer(xdstest.ClusterType, 1)
		want := []string{"outbound|9080||b.shop.example", "outbound|9080||c.shop.example", "outbound|9080||mark.shop.example"}
		if v == protocol.StateOfTheWorld {
			want = append([]string{"BlackHoleCluster", "PassthroughCluster", "outbound|9080||a.shop.example"}, want...)
		}
		if d := cmp.Diff(want, second.Names()); d != "" || len(second.Removed) > 0 {
			t.Errorf("removed %v, clusters (-want +got):\n%s", second.Removed, d)
		}
		c.Ack(second)
		c.Ack(c.AwaitAnswer(xdstest.EndpointType, 2)) // those of a cluster that was just sent
		settled(t, s, last)
		if n := len(c.Answers(xdstest.ClusterType)); n != 2 {
			t.Errorf("%d answers of clusters", n)
		}
	})
}
