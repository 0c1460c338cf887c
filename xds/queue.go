package xds

import (
	"context"
	"sync"
)

// pushQueue holds the connections that have to be pushed to: each once, however
// often it is enqueued, in the order in which they became dirty. A connection
// whose push is under way is kept back until that is done.
type pushQueue struct {
	mu      sync.Mutex // guards the fields below
	pending []*Connection
	queued  map[*Connection]bool
	active  map[*Connection]bool // with true: dirty again
	wake    chan struct{}
}

func newPushQueue() *pushQueue {
	return &pushQueue{
		queued: map[*Connection]bool{}, active: map[*Connection]bool{}, wake: make(chan struct{}, 1),
	}
}

// enqueue marks a connection as one to be pushed to.
func (q *pushQueue) enqueue(c *Connection) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, busy := q.active[c]; busy {
		q.active[c] = true
		return
	}
	if q.queued[c] {
		return
	}
	q.queued[c] = true
	q.pending = append(q.pending, c)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// dequeue returns the connection that has waited longest, and counts its push
// as under way until done. It returns nil when ctx ends.
func (q *pushQueue) dequeue(ctx context.Context) *Connection {
	for {
		q.mu.Lock()
		if len(q.pending) > 0 {
			c := q.pending[0]
			q.pending = q.pending[1:]
			delete(q.queued, c)
			q.active[c] = false
			q.mu.Unlock()
			return c
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-q.wake:
		}
	}
}

// done ends a push; a connection that became dirty meanwhile is queued again.
func (q *pushQueue) done(c *Connection) {
	q.mu.Lock()
	dirty := q.active[c]
	delete(q.active, c)
	q.mu.Unlock()
	if dirty {
		q.enqueue(c)
	}
}
