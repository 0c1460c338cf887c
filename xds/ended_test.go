package xds

import (
	"log/slog"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestARoundDoesNotWaitForWhoHasEnded: a connection that has ended may still be in the
// server's list when the next push begins. The push does not wait for it.
func TestARoundDoesNotWaitForWhoHasEnded(t *testing.T) {
	t.Parallel()
	s := &DiscoveryServer{logger: slog.New(slog.DiscardHandler), generations: newGenerations(), options: Options{StallTimeout: time.Minute}}
	c := s.newConnection(nil, &wire{variant: protocol.Delta}, func(error) {})
	c.waitsForClient.Store(false) // it has a proxy, and does not wait for its client
	c.end(nil)
	s.generations.begin(time.Now(), []*Connection{c})
	select {
	case <-s.generations.durations:
	default:
		t.Error("the round waits for a connection that has ended")
	}
}
