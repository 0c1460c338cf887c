package xds

import (
	"sync"
	"sync/atomic"
	"time"
)

// generations numbers pushes, and measures how long each takes: from its publication until
// every connection has advanced to it. A push does not wait for a connection that waits
// for its client when the push begins. A connection that its client blocks later delays
// the result until the next push at most.
type generations struct {
	number    atomic.Uint64      // the generation: the number of the newest push
	durations chan time.Duration // holds the duration of the last push, once that has ended

	mu      sync.Mutex // guards the fields below
	began   time.Time
	pending int // how many connections have yet to advance to the newest push
}

func newGenerations() *generations { return &generations{durations: make(chan time.Duration, 1)} }

// begin begins a push to connections that are not marked yet. It abandons the
// measurement of the last push if that has not ended.
func (r *generations) begin(at time.Time, connections []*Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.durations:
	default:
	}
	number := r.number.Add(1)
	r.began, r.pending = at, 0
	for _, c := range connections {
		if !c.waitsForClient.Load() {
			c.awaited = number
			r.pending++
		}
	}
	r.end()
}

// done notes that a connection has advanced to the newest context, or never will.
func (r *generations) done(c *Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.awaited == r.number.Load() {
		c.awaited = 0
		r.pending--
		r.end()
	}
}

// end sends the duration of the push if no connection is pending. The caller holds the
// lock.
func (r *generations) end() {
	if r.pending == 0 {
		r.durations <- time.Since(r.began) // at most one value per push, and begin has made room
	}
}
