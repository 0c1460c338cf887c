package consul

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/storage/retry"
)

// readsAtOnce is how many services are read at a time.
const readsAtOnce = 8

// reads are the services that are to be read. A service is read once however often
// it was asked for meanwhile, and never twice at one time, so that the last answer
// is the newest.
type reads struct {
	mu sync.Mutex // guards the fields below
	// urgent and later are the services that wait, which are read in this order.
	urgent, later []string
	waiting       map[string]bool
	// active services are being read; true where one has to be read again.
	active   map[string]bool
	failures map[string]*failures
	wake     chan struct{} // closed when a service begins to wait
}

func newReads() *reads {
	return &reads{waiting: map[string]bool{}, active: map[string]bool{}, failures: map[string]*failures{}, wake: make(chan struct{})}
}

// ask has services read soon, and those that are urgent first.
func (r *reads) ask(urgent bool, services ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range services {
		switch _, active := r.active[name]; {
		case active:
			r.active[name] = true
			continue
		case r.waiting[name] && !urgent:
			continue
		case urgent:
			r.urgent = append(r.urgent, name)
		default:
			r.later = append(r.later, name)
		}
		r.waiting[name] = true
	}
	if len(r.waiting) > 0 {
		close(r.wake)
		r.wake = make(chan struct{})
	}
}

// askAgain has those services read again that are being read: what has changed may
// concern them, though what they have is not known yet.
func (r *reads) askAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.active {
		r.active[name] = true
	}
}

// next waits for the next service to read; false when ctx has ended.
func (r *reads) next(ctx context.Context) (name string, ok bool) {
	for ctx.Err() == nil {
		r.mu.Lock()
		wake := r.wake
		name, ok = r.pop()
		r.mu.Unlock()
		if ok {
			return name, true
		}
		select {
		case <-ctx.Done():
		case <-wake:
		}
	}
	return "", false
}

// pop must be called with mu held.
func (r *reads) pop() (name string, ok bool) {
	for _, queue := range []*[]string{&r.urgent, &r.later} {
		for len(*queue) > 0 {
			name, *queue = (*queue)[0], (*queue)[1:]
			if r.waiting[name] { // else it was urgent and is read
				delete(r.waiting, name)
				r.active[name] = false
				return name, true
			}
		}
	}
	return "", false
}

// done notes that a service was read, or that this failed, which has it read again.
// It returns how long to wait before the next read.
func (r *reads) done(name string, failed bool) (wait time.Duration) {
	r.mu.Lock()
	again := r.active[name] || failed
	delete(r.active, name)
	if failed {
		if r.failures[name] == nil {
			r.failures[name] = newFailures()
		}
		wait = r.failures[name].next()
	} else {
		delete(r.failures, name)
	}
	r.mu.Unlock()
	if again {
		r.ask(false, name)
	}
	return wait
}

// idle says whether nothing is to be read.
func (r *reads) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)+len(r.active) == 0
}

// read reads services as they are requested, until ctx ends.
func (d *datacenter) read(ctx context.Context, r *reads) {
	var running sync.WaitGroup
	defer running.Wait()
	for range readsAtOnce {
		running.Go(func() {
			for {
				name, ok := r.next(ctx)
				if !ok {
					return
				}
				err := d.readOne(ctx, name)
				_ = retry.Sleep(ctx, min(maxPause, r.done(name, err != nil)))
			}
		})
	}
}

// errSuspect means that Consul must be examined before any answer is trusted.
var errSuspect = errors.New("a query of Consul has failed meanwhile")

// readOne reads a service. It fails where the answer cannot be believed.
func (d *datacenter) readOne(ctx context.Context, name string) error {
	if d.suspect() {
		d.recover(ctx)
	}
	round, number, end := d.round(ctx)
	defer end()
	q := d.service(name)
	entries, meta, err := request(round, d, q, 0)
	var a answer
	if err == nil {
		a = answer{instancesOf(&d.r.o, entries), meta.ResultsFilteredByACLs, meta.LastIndex}
		if d.r.catalog.withdraws(d.name, name, a) {
			err = d.hasItsData(round, number)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case round.Err() != nil:
		return round.Err() // all are asked anew
	case err != nil:
		d.fail(q.String(), err)
		return err
	case d.suspect():
		return errSuspect
	}
	d.forget(q.String())
	d.take(number, name, a)
	return nil
}
