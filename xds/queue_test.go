package xds

import (
	"context"
	"testing"
)

func TestPushQueue(t *testing.T) {
	t.Parallel()
	q, a, b := newPushQueue(), &Connection{}, &Connection{}
	ctx, cancel := context.WithCancel(t.Context())
	next := func(want *Connection, what string) {
		t.Helper()
		if got := q.dequeue(ctx); got != want {
			t.Errorf("%s: dequeued another connection", what)
		}
	}
	q.enqueue(a)
	q.enqueue(b)
	q.enqueue(a)
	next(a, "the first to wait")
	q.enqueue(a) // dirty again while its push is under way
	q.enqueue(a)
	next(b, "one under way is kept back")
	q.done(b)
	q.done(a)
	next(a, "dirty again, once")
	q.done(a)
	cancel()
	next(nil, "nothing waits, and the context has ended")
}
