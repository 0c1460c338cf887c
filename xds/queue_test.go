package xds

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestPushQueue: only so many connections have a turn at one time, and a turn that is given
// back goes to the next in line.
func TestPushQueue(t *testing.T) {
	t.Parallel()
	q := newPushQueue(2)
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		if err := q.enter(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	third := make(chan error)
	go func() { third <- q.enter(ctx, 1) }()
	q.leave()
	if err := <-third; err != nil {
		t.Errorf("a turn was given back, and the third is told %v", err)
	}
	fourth := make(chan error)
	go func() { fourth <- q.enter(ctx, 1) }()
	awaitWaiting(q, 1)
	cancel()
	if err := <-fourth; err == nil {
		t.Error("entered a full queue after the context has ended")
	}
	q.leave()
	q.leave()
	for range 2 {
		if err := q.enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if q.free != 0 || len(q.waiting) != 0 {
		t.Errorf("%d turns are free and %d wait, want none", q.free, len(q.waiting))
	}
}

func awaitWaiting(q *pushQueue, n int) {
	for {
		q.mu.Lock()
		waiting := len(q.waiting)
		q.mu.Unlock()
		if waiting == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestTheFurthestBehindGoesFirst, and of those the one that asked first.
func TestTheFurthestBehindGoesFirst(t *testing.T) {
	t.Parallel()
	q := newPushQueue(1)
	if err := q.enter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var order []int
	for i, at := range []uint64{7, 5, 9, 5} {
		running.Go(func() {
			if err := q.enter(t.Context(), at); err != nil {
				t.Error(err)
			}
			order = append(order, i) // one has the turn
			q.leave()
		})
		awaitWaiting(q, i+1)
	}
	q.leave()
	running.Wait()
	if want := []int{1, 3, 0, 2}; !slices.Equal(order, want) {
		t.Errorf("turns went to %v, want %v", order, want)
	}
}

// BenchmarkPushQueue is a thousand connections that build, two at a time.
func BenchmarkPushQueue(b *testing.B) {
	q := newPushQueue(2)
	for b.Loop() {
		var connections sync.WaitGroup
		for i := range 1000 {
			connections.Go(func() {
				if err := q.enter(b.Context(), uint64(i%3)); err != nil {
					b.Error(err)
					return
				}
				runtime.Gosched() // the others come meanwhile
				q.leave()
			})
		}
		connections.Wait()
	}
}

// TestAConnectionIsMarkedOnce: changes that come while a connection waits make one push.
func TestAConnectionIsMarkedOnce(t *testing.T) {
	t.Parallel()
	c := &Connection{wakes: make(chan struct{}, 1)}
	for range 3 {
		c.mark()
	}
	if <-c.wakes; !c.dirty.Swap(false) {
		t.Error("not marked")
	}
	select {
	case <-c.wakes:
		t.Error("marked twice")
	default:
	}
}

// TestARoundEndsWithTheLastConnection: the duration of a push is known once all connections
// have it that could take it.
func TestARoundEndsWithTheLastConnection(t *testing.T) {
	t.Parallel()
	known := func(r *generations) bool {
		select {
		case <-r.durations:
			return true
		default:
			return false
		}
	}
	r := newGenerations()
	r.begin(time.Now(), nil)
	if !known(r) {
		t.Error("a round of nobody goes on")
	}
	a, b, stuck := &Connection{}, &Connection{}, &Connection{}
	stuck.waitsForClient.Store(true)
	r.begin(time.Now(), []*Connection{a, b, stuck})
	r.done(stuck)
	r.done(a)
	r.done(a)
	if known(r) {
		t.Error("a round has ended that one has not taken")
	}
	r.done(b)
	if !known(r) {
		t.Error("a round goes on that all have taken")
	}
	r.begin(time.Now(), []*Connection{a, b})
	r.done(a)
	r.begin(time.Now(), []*Connection{a})
	r.done(b)
	if known(r) {
		t.Error("the next round ended with the last one")
	}
	r.done(a)
	if !known(r) || r.number.Load() != 4 {
		t.Errorf("round %d goes on", r.number.Load())
	}
}
