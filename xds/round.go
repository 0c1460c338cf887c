package xds

import (
	"sync"
	"sync/atomic"
	"time"
)

// rounds measures what a push costs: the time from its publication until every
// connection has taken it that could. A connection that waits for its client when
// a round begins is not waited for, one that is stopped by its client meanwhile
// for no longer than the next round.
type rounds struct {
	number  atomic.Uint64      // of the round that began last
	drained chan time.Duration // what the last round took, once it is known

	mu      sync.Mutex // guards the fields below
	began   time.Time
	pending map[*Connection]struct{}
}

func newRounds() *rounds {
	return &rounds{drained: make(chan time.Duration, 1), pending: map[*Connection]struct{}{}}
}

// begin begins a round for some connections, which are not marked yet; the last
// one, where it goes on, is not measured.
func (r *rounds) begin(at time.Time, connections []*Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.drained:
	default:
	}
	r.number.Add(1)
	r.began = at
	clear(r.pending)
	for _, c := range connections {
		if !c.away.Load() {
			r.pending[c] = struct{}{}
		}
	}
	r.end()
}

// done says that a connection has taken the newest, or never will.
func (r *rounds) done(c *Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, pending := r.pending[c]; !pending {
		return
	}
	delete(r.pending, c)
	r.end()
}

// end tells what the round took, if it has ended. The caller holds the lock.
func (r *rounds) end() {
	if len(r.pending) == 0 {
		r.drained <- time.Since(r.began) // one value in a round, and begin has made room
	}
}
