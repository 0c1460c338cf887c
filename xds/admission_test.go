package xds_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestFirstSyncsAreRationed: while as many proxies are brought up as may be at
// one time, the next waits, and is served as soon as one of them has taken all,
// or has gone.
func TestFirstSyncsAreRationed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(first *xdstest.Client){
		"it has taken all": func(first *xdstest.Client) {
			first.Ack(first.AwaitAnswer(xdstest.ClusterType, 0))
			first.Subscribe(xdstest.ListenerType)
			first.Ack(first.AwaitAnswer(xdstest.ListenerType, 0))
		},
		"it has gone": (*xdstest.Client).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variants(t, func(t *testing.T, v stream.Variant) {
				s := crowded(t, time.Hour)
				first := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
				first.Subscribe(xdstest.ClusterType)
				first.AwaitAnswer(xdstest.ClusterType, 0)
				second := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.2"), Variant: v})
				second.Subscribe(xdstest.ClusterType)
				xdstest.Eventually(t, "the second stream", func() bool { return s.XDS.Connections() == 2 })
				if n := len(second.Answers(xdstest.ClusterType)); n > 0 || connected(s, "10.0.0.2") {
					t.Fatal("the second proxy is served while the first takes its turn")
				}
				end(first)
				second.AwaitAnswer(xdstest.ClusterType, 0)
			})
		})
	}
}

// TestACrowdIsTurnedAway: a stream that waits too long for its turn is told to
// try again.
func TestACrowdIsTurnedAway(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v stream.Variant) {
		s := crowded(t, 20*time.Millisecond)
		first := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		first.Subscribe(xdstest.ClusterType)
		first.AwaitAnswer(xdstest.ClusterType, 0)
		second := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.2"), Variant: v})
		second.Subscribe(xdstest.ClusterType)
		if err := second.AwaitEnd(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "try again") {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// crowded is a server that brings up one proxy at a time.
func crowded(t *testing.T, wait time.Duration) *xdstest.Server {
	t.Helper()
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) { o.MaxFirstSyncs, o.AdmissionWait = 1, wait })
	revision := s.Apply(service("reviews", 9080, "10.1.0.1"))
	xdstest.Eventually(t, "all to be published", func() bool { return s.XDS.Context().Revision() >= revision })
	return s
}
