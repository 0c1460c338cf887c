package xds

import (
	"container/heap"
	"context"
	"sync"
)

// pushQueue rations the building of configuration: so many connections build at
// one time, the others wait, and of these the one goes first that is the furthest
// behind, then the one that asked first. Only a connection that is ready to build
// is in it, never one that waits for its client; and as a connection is marked
// dirty or not, it has one pending push however many changes come meanwhile.
type pushQueue struct {
	mu      sync.Mutex // guards the fields below
	free    int        // turns that nobody has
	asked   uint64
	waiting turns
}

func newPushQueue(size int) *pushQueue { return &pushQueue{free: size} }

// turn is one that waits: it is at the push of a number, and asked as the so
// many-th.
type turn struct {
	at, asked uint64
	given     chan struct{} // closed when the turn is its
	place     int           // in the heap, -1 once it is out
}

// enter waits for a turn, which leave gives back; at is the number of the push
// that the connection has. It fails when ctx ends.
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
	q.asked++
	t := &turn{at: at, asked: q.asked, given: make(chan struct{})}
	heap.Push(&q.waiting, t)
	q.mu.Unlock()
	select {
	case <-t.given:
		return nil
	case <-ctx.Done():
		q.giveUp(t)
		return ctx.Err()
	}
}

// giveUp takes one out that waits no more; where it was just given a turn, that
// goes on to the next.
func (q *pushQueue) giveUp(t *turn) {
	q.mu.Lock()
	waits := t.place >= 0
	if waits {
		heap.Remove(&q.waiting, t.place)
	}
	q.mu.Unlock()
	if !waits {
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
	close(heap.Pop(&q.waiting).(*turn).given)
}

// turns is a heap of those that wait, the furthest behind on top.
type turns []*turn

func (t turns) Len() int { return len(t) }

func (t turns) Less(i, j int) bool {
	if t[i].at != t[j].at {
		return t[i].at < t[j].at
	}
	return t[i].asked < t[j].asked
}

func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

// Push implements heap.Interface.
func (t *turns) Push(x any) {
	added := x.(*turn)
	added.place = len(*t)
	*t = append(*t, added)
}

// Pop implements heap.Interface.
func (t *turns) Pop() any {
	last := len(*t) - 1
	out := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	out.place = -1
	return out
}
