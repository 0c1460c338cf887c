package cache

import (
	"context"
	"errors"
	"sync"
)

// Worker is the one queue on which all handlers of a server run: the handlers of its
// caches and of its registries. Tasks are posted under a key: a newer task replaces a
// waiting one of the same key. So posting never blocks and no backlog can grow.
//
// When a task ends the hooks run, in the order in which they were added: they commit the
// rows that the handlers collected. The functions that the task passed to Then run after
// the hooks.
type Worker struct {
	mu      sync.Mutex // guards the fields below
	order   []any      // keys that wait, oldest first
	waiting map[any]func()
	running bool

	hooks []func()      // fixed once running
	then  []func()      // of the present task; only the worker uses it
	wake  chan struct{} // holds a token whenever order may have grown
}

// NewWorker returns a worker that waits for Run.
func NewWorker() *Worker {
	return &Worker{waiting: map[any]func(){}, wake: make(chan struct{}, 1)}
}

// AtTaskEnd adds a hook. It panics once Run was called: that is a mistake in
// the wiring.
func (w *Worker) AtTaskEnd(hook func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		panic("cache.Worker: AtTaskEnd after Run")
	}
	w.hooks = append(w.hooks, hook)
}

// Post queues a task behind the waiting ones. It never blocks.
func (w *Worker) Post(key any, task func()) {
	w.mu.Lock()
	if _, ok := w.waiting[key]; !ok {
		w.order = append(w.order, key)
	}
	w.waiting[key] = task
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run runs tasks until ctx ends, then returns nil. It finishes the present task and
// leaves the waiting ones.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.running {
		w.mu.Unlock()
		return errors.New("worker is running already")
	}
	w.running = true
	w.mu.Unlock()
	for ctx.Err() == nil {
		if task := w.next(); task != nil {
			w.perform(task)
			continue
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		}
	}
	return nil
}

// Then runs f after the hooks of the present task, so that a task announces nothing
// before its rows are committed. Only a task may call it.
func (w *Worker) Then(f func()) { w.then = append(w.then, f) }

func (w *Worker) perform(task func()) {
	task()
	for _, hook := range w.hooks {
		hook()
	}
	for _, f := range w.then {
		f()
	}
	w.then = nil
}

func (w *Worker) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return nil
	}
	key := w.order[0]
	w.order[0] = nil
	w.order = w.order[1:]
	task := w.waiting[key]
	delete(w.waiting, key)
	return task
}

// Len returns the number of waiting tasks.
func (w *Worker) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.order)
}
