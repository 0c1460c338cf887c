package xds

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Drain refuses new streams and ends the open ones, in random order and evenly over a
// time, so that their proxies do not all reconnect at once. It returns when the last
// stream has ended, or when ctx ends. From its start Ready returns an error.
func (s *DiscoveryServer) Drain(ctx context.Context, over time.Duration) {
	s.refuse(errors.New("it is being drained"))
	connections := s.shuffled()
	if len(connections) == 0 {
		return
	}
	s.logger.Info("draining", "proxies", len(connections), "over", over)
	began := time.Now()
	for i, c := range connections {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(began.Add(over * time.Duration(i+1) / time.Duration(len(connections))))):
			c.admitted.HangUp(errShutdown)
		}
	}
}

// Move ends up to n streams, chosen at random, and the connections to their clients, so
// that these clients may choose another server. It returns how many it ended.
func (s *DiscoveryServer) Move(n int) int {
	connections := s.shuffled()
	connections = connections[:min(max(n, 0), len(connections))]
	for _, c := range connections {
		c.admitted.HangUp(errMoved)
	}
	return len(connections)
}

// shuffled returns the open connections in random order.
func (s *DiscoveryServer) shuffled() []*Connection {
	connections := s.all()
	rand.Shuffle(len(connections), func(i, j int) { connections[i], connections[j] = connections[j], connections[i] })
	return connections
}

// Connections returns the number of open streams.
func (s *DiscoveryServer) Connections() int { return len(s.all()) }
