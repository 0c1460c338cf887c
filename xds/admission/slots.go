package admission

import (
	"context"
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
// A client loses its slot if it is silent for too long, or if the server has waited for it
// for too long in all. The server goes on to serve it without a slot. Each lost slot halves
// both limits for later clients. Each first sync that completes doubles them again, as does
// each client that finds a free slot. So a long row of clients that stall holds up those
// behind it only about twice as long as one of them would.
type slots struct {
	taken      chan struct{} // holds a token for each first sync
	waiting    atomic.Int64
	refused    atomic.Int64
	lost       atomic.Int64 // slots lost by clients that kept the server waiting
	maxWaiting int64        // how many may wait
	// silence is how long a client that owes no answer may send nothing, not even a part of
	// a message; limit is how long the server waits for the client in all. Both are the
	// values before any halving.
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

// enter waits for a slot.
func (a *slots) enter(ctx context.Context) error {
	select {
	case a.taken <- struct{}{}: // nobody waits
		a.adjust(-1)
		return nil
	default:
	}
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

// adjust halves the time of later slots (+1), or doubles it (-1).
func (a *slots) adjust(by int64) {
	for {
		hurry := a.halvings.Load()
		if next := min(max(hurry+by, 0), maxHalvings); a.halvings.CompareAndSwap(hurry, next) {
			return
		}
	}
}

// firstSync is the first sync of one client. Its clocks run while the server waits for the
// client, and stand still while the server works. The lock of the stream guards it.
type firstSync struct {
	lost          bool // the client has lost its slot
	heard         func() time.Time
	silence, left time.Duration
	since         time.Time   // when the server began to wait for the client; zero while it does not
	owes          bool        // the client owes an answer
	timer         *time.Timer // runs while the server waits
}

// BeginSync waits for a slot, and begins the first sync. It fails if too many proxies wait
// already, or when ctx ends. heard returns when the client last sent something.
func (s *Stream) BeginSync(ctx context.Context, heard func() time.Time) error {
	a := s.gate.slots
	if err := a.enter(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		<-a.taken
		return nil
	}
	hurry := a.halvings.Load()
	s.sync = &firstSync{heard: heard, silence: a.silence >> hurry, left: a.limit >> hurry, since: time.Now()}
	s.sync.timer = time.AfterFunc(s.sync.patience(), s.checkSlot)
	return nil
}

// Syncing says whether the first sync is under way.
func (s *Stream) Syncing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sync != nil
}

// StopClocks says that the server works for the client. It does nothing if no first sync is
// under way.
func (s *Stream) StopClocks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sync != nil {
		s.sync.stop()
	}
}

// StartClocks says that the server waits for the client. If owes is set the client owes an
// answer, else it has to send something soon. If the server waits too long, the client
// loses its slot. StartClocks does nothing if no first sync is under way.
func (s *Stream) StartClocks(owes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.sync; f != nil {
		f.since, f.owes = time.Now(), owes
		f.timer.Reset(f.patience())
	}
}

// Synced says that the client has completed its first sync.
func (s *Stream) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sync != nil {
		s.endSync()
		s.gate.slots.adjust(-1)
	}
}

// endSync gives up the slot of the first sync. The caller holds the lock.
func (s *Stream) endSync() {
	s.sync.stop()
	if !s.sync.lost {
		<-s.gate.slots.taken
	}
	s.sync = nil
}

// checkSlot takes the slot from the client if the server has waited too long. If a part of
// a message has come meanwhile, it checks again later.
func (s *Stream) checkSlot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.sync
	if f == nil || f.lost || f.since.IsZero() {
		return
	}
	if rest := f.patience(); rest > 0 {
		f.timer.Reset(rest)
		return
	}
	f.lost = true
	<-s.gate.slots.taken
	s.gate.slots.lost.Add(1)
	s.gate.slots.adjust(+1)
}

func (f *firstSync) stop() {
	f.timer.Stop()
	if !f.since.IsZero() {
		f.left -= time.Since(f.since)
		f.since = time.Time{}
	}
}

// patience returns how long the server still waits for the client.
func (f *firstSync) patience() time.Duration {
	left := f.left - time.Since(f.since)
	if f.owes {
		return left
	}
	last := f.since
	if heard := f.heard(); heard.After(last) {
		last = heard
	}
	return min(left, f.silence-time.Since(last))
}
