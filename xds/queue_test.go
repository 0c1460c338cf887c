package xds

import (
	"context"
	"testing"
)

func TestPushQueue(t *testing.T) {
	t.Parallel()
	q := newPushQueue(2)
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		if err := q.enter(ctx); err != nil {
			t.Fatal(err)
		}
	}
	third := make(chan error)
	go func() { third <- q.enter(ctx) }()
	q.leave()
	if err := <-third; err != nil {
		t.Errorf("a turn was given back, and the third is told %v", err)
	}
	cancel()
	if err := q.enter(ctx); err == nil {
		t.Error("entered a full queue after the context has ended")
	}
}

// TestAConnectionIsMarkedOnce: changes that come while one waits are one push.
func TestAConnectionIsMarkedOnce(t *testing.T) {
	t.Parallel()
	c := &Connection{dirty: make(chan struct{}, 1)}
	for range 3 {
		c.mark()
	}
	<-c.dirty
	select {
	case <-c.dirty:
		t.Error("marked twice")
	default:
	}
}
