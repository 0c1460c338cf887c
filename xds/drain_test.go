package xds_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestDrainEndsAllStreams one after the other, and lets none begin.
func TestDrainEndsAllStreams(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		var clients []*xdstest.Client
		for i := range 4 {
			c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node(fmt.Sprintf("10.0.0.%d", i+1)), Variant: v})
			c.Subscribe(xdstest.ClusterType)
			c.AwaitAnswer(xdstest.ClusterType, 0)
			clients = append(clients, c)
		}
		s.XDS.Drain(t.Context(), 40*time.Millisecond)
		for _, c := range clients {
			if err := c.AwaitEnd(); status.Code(err) != codes.Unavailable {
				t.Errorf("a stream ended with %v", err)
			}
		}
		if s.XDS.Ready() == nil {
			t.Error("a server that drains is ready")
		}
		late := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.9"), Variant: v})
		late.Subscribe(xdstest.ClusterType)
		if err := late.AwaitEnd(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream that came late ended with %v", err)
		}
	})
}

// TestDrainIsSpread over its time: when it is cut short there are streams left.
func TestDrainIsSpread(t *testing.T) {
	t.Parallel()
	s := xdstest.NewServer(t, catalogue.Types())
	for i := range 3 {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node(fmt.Sprintf("10.0.0.%d", i+1)), Variant: protocol.Delta})
		c.Subscribe(xdstest.ClusterType)
		c.AwaitAnswer(xdstest.ClusterType, 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var draining sync.WaitGroup
	draining.Go(func() { s.XDS.Drain(ctx, time.Hour) })
	xdstest.Eventually(t, "the drain to begin", func() bool { return s.XDS.Ready() != nil })
	if n := s.XDS.Connections(); n != 3 {
		t.Errorf("%d streams are left at the beginning of an hour, want 3", n)
	}
	cancel()
	draining.Wait()
}

// TestMoveHangsUp: Move ends the given number of streams and the connections under them, so
// that their clients choose a server anew.
func TestMoveHangsUp(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var hungUp []net.Addr
	s := xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
		o.HangUp = func(remote net.Addr) {
			mu.Lock()
			defer mu.Unlock()
			hungUp = append(hungUp, remote)
		}
	})
	for i := range 3 {
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node(fmt.Sprintf("10.0.0.%d", i+1)), Variant: protocol.Delta})
		c.Subscribe(xdstest.ClusterType)
		c.AwaitAnswer(xdstest.ClusterType, 0)
	}
	if n := s.XDS.Move(2); n != 2 {
		t.Errorf("Move(2) has moved %d", n)
	}
	xdstest.Eventually(t, "two streams to end", func() bool { return s.XDS.Connections() == 1 })
	mu.Lock()
	if len(hungUp) != 2 || hungUp[0].String() == hungUp[1].String() {
		t.Errorf("hung up on %v, want two clients", hungUp)
	}
	mu.Unlock()
	if n := s.XDS.Move(5); n != 1 {
		t.Errorf("Move(5) of one has moved %d", n)
	}
}
