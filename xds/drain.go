package xds

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Drain lets no more streams begin and ends those there are, in random order,
// evenly over a time: their proxies do not arrive elsewhere all at once. It
// returns when the last has ended, at once where there is none, and when ctx
// ends. The server is not ready from its beginning on.
func (s *DiscoveryServer) Drain(ctx context.Context, over time.Duration) {
	s.mu.Lock()
	s.draining = true
	connections := slices.Collect(maps.Keys(s.connections))
	s.mu.Unlock()
	if len(connections) == 0 {
		return
	}
	s.logger.Info("draining", "proxies", len(connections), "over", over)
	rand.Shuffle(len(connections), func(i, j int) { connections[i], connections[j] = connections[j], connections[i] })
	began := time.Now()
	for i, c := range connections {
		if !sleep(ctx, time.Until(began.Add(over*time.Duration(i+1)/time.Duration(len(connections))))) {
			return
		}
		s.hangUp(c, errShutdown)
	}
}

// Move ends up to n streams, chosen at random, and the connections to their
// clients, so that these may choose another server. It returns how many it
// ended.
func (s *DiscoveryServer) Move(n int) int {
	s.mu.Lock()
	connections := slices.Collect(maps.Keys(s.connections))
	s.mu.Unlock()
	rand.Shuffle(len(connections), func(i, j int) { connections[i], connections[j] = connections[j], connections[i] })
	connections = connections[:min(max(n, 0), len(connections))]
	for _, c := range connections {
		s.hangUp(c, errMoved)
	}
	return len(connections)
}

// Connections is how many streams there are.
func (s *DiscoveryServer) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections)
}

// hangUp ends a stream, and the connection that it came by: a client that merely
// loses its stream opens the next one on the same connection.
func (s *DiscoveryServer) hangUp(c *Connection, why error) {
	c.cancel(why)
	if s.options.HangUp != nil && c.remote != nil {
		s.options.HangUp(c.remote)
	}
}

// sleep waits, and is false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
