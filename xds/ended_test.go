package xds

import (
	"log/slog"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/stream"
)

// TestARoundDoesNotWaitForWhoHasEnded: a connection may have ended and still be
// among those of the server when the next round begins.
func TestARoundDoesNotWaitForWhoHasEnded(t *testing.T) {
	t.Parallel()
	s := &DiscoveryServer{logger: slog.New(slog.DiscardHandler), rounds: newRounds(), options: Options{StallTimeout: time.Minute}}
	c := s.newConnection(stream.Delta, deltaWire{}, func(error) {})
	c.away.Store(false) // it has a proxy, and does not wait for its client
	c.end()
	s.rounds.begin(time.Now(), []*Connection{c})
	select {
	case <-s.rounds.drained:
	default:
		t.Error("the round waits for a connection that has ended")
	}
}
