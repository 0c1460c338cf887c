package xds

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// pushQueue limits how many connections build their resources at one time. The others
// wait: the one whose last push is oldest goes first, then the one that asked first.
// Only connections that are ready to build wait here, never one that waits for its
// client. Changes only mark a connection as dirty, so it has at most one push pending,
// however many come.
type pushQueue struct {
	mu      sync.Mutex // guards the fields below
	free    int        // how many more may build now
	waiting []*waiter  // in the order in which they go
}

func newPushQueue(size int) *pushQueue { return &pushQueue{free: size} }

// waiter is a connection that waits, and the generation of its last push.
type waiter struct {
	generation uint64
	granted    chan struct{} // closed when it may build
}

// enter waits until the connection may build; leave must follow. at is the generation
// of the connection's last push. enter fails when ctx ends.
func (q *pushQueue) enter(ctx context.Context, at uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return nil
	}
	w := &waiter{generation: at, granted: make(chan struct{})}
	after, _ := slices.BinarySearchFunc(q.waiting, at+1, func(w *waiter, next uint64) int { return cmp.Compare(w.generation, next) })
	q.waiting = slices.Insert(q.waiting, after, w) // mostly at the end
	q.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		q.giveUp(w)
		return ctx.Err()
	}
}

// giveUp removes a waiter whose ctx has ended. If its turn had just come, the next
// waiter gets it.
func (q *pushQueue) giveUp(w *waiter) {
	q.mu.Lock()
	at := slices.Index(q.waiting, w)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	q.mu.Unlock()
	if at < 0 {
		q.leave()
	}
}

func (q *pushQueue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	close(q.waiting[0].granted)
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
}
