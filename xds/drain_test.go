package xds_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admission"
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

// TestMoveHangsUp on as many clients as it is told, whose connections are closed,
// too: they choose a server anew.
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

// TestConnsHangUp closes the connection of one client, and of that one only.
func TestConnsHangUp(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := admission.NewConns(inner)
	defer l.Close()
	clients, accepted := make([]net.Conn, 2), make([]net.Conn, 2)
	for i := range clients {
		if clients[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
		if accepted[i], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		defer accepted[i].Close()
	}
	l.HangUp(clients[0].LocalAddr())
	l.HangUp(clients[0].LocalAddr()) // is nothing any more
	if _, err := clients[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client that was hung up on reads %v", err)
	}
	if _, err := accepted[1].Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if n, err := clients[1].Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the other client reads %d bytes and %v", n, err)
	}
}

// TestConnsTellWhenAClientMoved: when it was heard, and when it took something, each
// by itself; and nothing of one that is not there.
func TestConnsTellWhenAClientMoved(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := admission.NewConns(inner)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	remote := client.LocalAddr()
	said, took := l.LastActivity(remote)
	if said.IsZero() || took.IsZero() {
		t.Errorf("a client that has just come was heard at %s and took at %s", said, took)
	}
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	saidNow, tookNow := l.LastActivity(remote)
	if !saidNow.Equal(said) || !tookNow.After(took) {
		t.Errorf("with a byte taken it was heard %s later and took %s later", saidNow.Sub(said), tookNow.Sub(took))
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if now, _ := l.LastActivity(remote); !now.After(said) {
		t.Error("with a byte said it was not heard")
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if said, took := l.LastActivity(remote); !said.IsZero() || !took.IsZero() {
		t.Error("a client that is gone moves")
	}
}
