package xds

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// admission bounds how many proxies are brought up from nothing at one time:
// what a fleet asks for that comes back all at once must not take the memory and
// the time that those need who are there already. The others wait in the order in
// which they came, for as long as it takes: who waits is not refused, and waits for
// nobody who came later.
type admission struct {
	slots   chan struct{} // holds a token for each first sync
	waiting atomic.Int64
	refused atomic.Int64
	room    int64 // for so many to wait
	// silence is how long a turn goes on in which the client owes no answer and
	// says nothing, not even a part of a message, and limit how long it lasts at most.
	silence, limit time.Duration
}

// newAdmission is one of so many turns at a time. A hundred times as many may wait.
func newAdmission(size int) *admission {
	return &admission{
		slots: make(chan struct{}, size), room: 100 * int64(size),
		silence: 2 * time.Second, limit: 10 * time.Second, // an Envoy takes less of either
	}
}

// errCrowded is what a stream is told for which there is no room to wait. Clients
// try again, here or at another server.
var errCrowded = status.Error(codes.Unavailable, "too many proxies are being brought up at this time: try again")

// slot is the turn of one client, until it ends or is over by itself.
type slot struct {
	free    func() // once
	heard   func() time.Time
	silence time.Duration
	limit   *time.Timer

	mu    sync.Mutex // guards what follows
	idle  bool       // nothing is done for the client, which owes no answer
	quiet *time.Timer
}

// enter waits for the turn of a client that was heard last at some time.
func (a *admission) enter(ctx context.Context, heard func() time.Time) (*slot, error) {
	select {
	case a.slots <- struct{}{}: // there is none who waits
	default:
		if err := a.wait(ctx); err != nil {
			return nil, err
		}
	}
	s := &slot{free: sync.OnceFunc(func() { <-a.slots }), heard: heard, silence: a.silence, idle: true}
	s.limit = time.AfterFunc(a.limit, s.free)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = time.AfterFunc(a.silence, s.look)
	return s, nil
}

func (a *admission) wait(ctx context.Context) error {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > a.room {
		a.refused.Add(1)
		return errCrowded
	}
	select {
	case a.slots <- struct{}{}: // a channel takes from those who wait in their order
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inside is how many first syncs there are.
func (a *admission) inside() int { return len(a.slots) }

// end ends the turn, once or more often.
func (s *slot) end() {
	s.serves()
	s.limit.Stop()
	s.free()
}

// serves says that something is done for the client.
func (s *slot) serves() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = false
	s.quiet.Stop()
}

// rests says that nothing more is done before the client says something. Where it
// owes no answer either it holds the turn up.
func (s *slot) rests(owes bool) {
	if owes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = true
	s.quiet.Reset(s.silence)
}

// look ends the turn where the client is silent, and looks again where a part of
// what it says has come.
func (s *slot) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.idle {
		return
	}
	if left := s.silence - time.Since(s.heard()); left > 0 {
		s.quiet.Reset(left)
		return
	}
	s.free()
}

// admitted ends the connection's turn of the first sync once its client has
// taken listeners, which an Envoy asks for when it has clusters and endpoints;
// on a stream of one type, once it has taken that.
func (c *Connection) admitted() {
	if c.slot == nil {
		return
	}
	owes := false
	if c.flow != nil {
		for typeURL, session := range c.flow.Sessions() {
			t, served := c.server.typ(typeURL)
			last := typeURL == c.wire.one() || served && t.Name == "LDS"
			if last && session.Started() && !session.Pending() {
				c.slot.end()
				c.slot = nil
				return
			}
			owes = owes || session.InFlight()
		}
	}
	c.slot.rests(owes)
}
