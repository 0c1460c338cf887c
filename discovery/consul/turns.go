package consul

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// turnsAtOnce is how many services are asked for at a time, and turnPause the
	// time from one to the next once all were asked for.
	turnsAtOnce = 8
	turnPause   = 20 * time.Millisecond
)

// turns are the services that are asked for one after the other.
type turns struct {
	mu     sync.Mutex // guards the fields below
	names  []string   // sorted
	next   int
	passes int
	// indexes are those of the last answers.
	indexes map[string]uint64
}

func newTurns() *turns { return &turns{indexes: map[string]uint64{}} }

func (t *turns) set(names map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = slices.Sorted(maps.Keys(names))
}

// take is whose turn it is, empty where there are none, and whether all had
// theirs again.
func (t *turns) take() (name string, around bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next >= len(t.names) {
		t.next = 0
		if len(t.names) == 0 {
			return "", false
		}
		t.passes++
		around = true
	}
	t.next++
	return t.names[t.next-1], around
}

// passed says whether all had their turn at least once.
func (t *turns) passed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passes > 1
}

// isNew says whether an answer of that index was not seen yet.
func (t *turns) isNew(name string, index uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, seen := t.indexes[name]
	t.indexes[name] = index
	return !seen || last != index
}

// takeTurns asks for one service after the other until ctx ends.
func (d *datacenter) takeTurns(ctx context.Context, t *turns) {
	var running sync.WaitGroup
	defer running.Wait()
	pace := time.NewTicker(turnPause)
	defer pace.Stop()
	for range turnsAtOnce {
		running.Go(func() {
			for ctx.Err() == nil {
				name, around := t.take()
				if around {
					d.turn()
				}
				if name == "" || t.passed() {
					select {
					case <-ctx.Done():
						return
					case <-pace.C:
					}
				}
				if name != "" {
					d.takeTurn(ctx, t, name)
				}
			}
		})
	}
	running.Wait()
}

func (d *datacenter) takeTurn(ctx context.Context, t *turns, name string) {
	if d.suspect() {
		d.recover(ctx)
	}
	q := d.service(name)
	entries, meta, err := request(ctx, d, q, 0)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.fail(q.String(), err)
	case d.suspect():
		// Consul failed meanwhile, and is to be looked at first.
	default:
		d.forget(q.String())
		if t.isNew(name, meta.LastIndex) {
			d.take(name, answer{instancesOf(&d.r.o, entries), meta.ResultsFilteredByACLs, true, meta.LastIndex})
		}
	}
}
