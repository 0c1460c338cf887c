package admission

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slots limit how many proxies have their first sync at one time. A whole fleet
// that reconnects must not take the memory and the time that connected proxies need.
// The others wait in the order in which they came, for as long as it takes. Only a
// client that has begun its first request waits.
//
// A client that is silent, or that the server has waited for too long in all, loses its
// slot. It is served on without one. Each lost slot halves both times for later clients.
// Each first sync that completes doubles them again, as does each client that finds a
// free slot. So clients that stall cannot hold up those behind them for longer than one
// of them could.
type slots struct {
	taken      chan struct{} // holds a token for each first sync
	waiting    atomic.Int64
	refused    atomic.Int64
	lost       atomic.Int64 // slots lost by clients that kept the server waiting
	maxWaiting int64        // how many may wait
	// silence is how long a client may send nothing while it owes no answer, not even a
	// part of a message; limit is how long the server waits for it in all. Both apply
	// while no slot was lost.
	silence, limit time.Duration
	halvings       atomic.Int64 // how often both are halved
}

// maxHalvings bounds halvings: ten thousand clients that stall, a hundred at a time, take
// seconds.
const maxHalvings = 7

func newSlots(o Options) *slots {
	return &slots{taken: make(chan struct{}, o.MaxFirstSyncs), maxWaiting: int64(o.MaxWaiting), silence: o.SyncSilence, limit: o.SyncLimit}
}

// errCrowded ends a stream when too many wait. Clients try again, here or at another
// server.
var errCrowded = status.Error(codes.Unavailable, "too many proxies are being brought up at this time: try again")

// slot is the first-sync slot of one client, until its sync ends or the slot is lost.
// Its clocks run while the server waits for the client, and stand still while it works.
type slot struct {
	of    *slots
	heard func() time.Time

	mu            sync.Mutex // guards the fields below
	released      bool
	silence, left time.Duration
	since         time.Time   // when the server began to wait for the client; zero while it does not
	owes          bool        // the client owes an answer
	timer         *time.Timer // runs while the server waits
}

// enter waits for a slot. heard returns when the client last sent something.
func (a *slots) enter(ctx context.Context, heard func() time.Time) (*slot, error) {
	select {
	case a.taken <- struct{}{}: // nobody waits
		a.adjust(-1)
	default:
		if err := a.wait(ctx); err != nil {
			return nil, err
		}
	}
	hurry := a.halvings.Load()
	s := &slot{of: a, heard: heard, silence: a.silence >> hurry, left: a.limit >> hurry, since: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.patience(), s.check)
	return s, nil
}

// adjust halves the time of later slots (+1), or doubles it (-1).
func (a *slots) adjust(by int64) {
	for {
		hurry := a.halvings.Load()
		if next := min(max(hurry+by, 0), maxHalvings); a.halvings.CompareAndSwap(hurry, next) {
			return
		}
	}
}

func (a *slots) wait(ctx context.Context) error {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > a.maxWaiting {
		a.refused.Add(1)
		return errCrowded
	}
	select {
	case a.taken <- struct{}{}: // a channel serves its senders in order
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end releases the slot. It may be called more than once.
func (s *slot) end() {
	s.stopClocks()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

// synced releases the slot of a client that has completed its first sync.
func (s *slot) synced() {
	s.end()
	s.of.adjust(-1)
}

// stopClocks stops the clocks: the server works for the client.
func (s *slot) stopClocks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer.Stop()
	if !s.since.IsZero() {
		s.left -= time.Since(s.since)
		s.since = time.Time{}
	}
}

// startClocks starts the clocks: the server waits for the client. A client that owes no
// answer has to send something soon.
func (s *slot) startClocks(inFlight bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.owes = time.Now(), inFlight
	s.timer.Reset(s.patience())
}

// patience returns how long the server still waits for the client.
func (s *slot) patience() time.Duration {
	left := s.left - time.Since(s.since)
	if s.owes {
		return left
	}
	last := s.since
	if heard := s.heard(); heard.After(last) {
		last = heard
	}
	return min(left, s.silence-time.Since(last))
}

// check takes the slot of a client that the server has waited for too long. If a part of
// a message has come meanwhile, it looks again later.
func (s *slot) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return
	}
	if rest := s.patience(); rest > 0 {
		s.timer.Reset(rest)
	} else if s.release() {
		s.of.lost.Add(1)
		s.of.adjust(+1)
	}
}

// release hands the slot to the next client; false if it was released before.
func (s *slot) release() bool {
	if s.released {
		return false
	}
	s.released = true
	<-s.of.taken
	return true
}
