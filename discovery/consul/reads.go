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

// reads is the queue of services to read. Several requests for a waiting service make one
// read. A service is never read twice at one time, so that the last answer is the newest.
type reads struct {
	mu sync.Mutex // guards the fields below
	// urgent and later hold the waiting services; urgent ones are read first.
	urgent, later []string
	waiting       map[string]bool
	// active holds the services being read; the value is true if the service must be read
	// again.
	active   map[string]bool
	failures map[string]*failures
	wake     chan struct{} // closed when a service begins to wait
}

func newReads() *reads {
	return &reads{waiting: map[string]bool{}, active: map[string]bool{}, failures: map[string]*failures{}, wake: make(chan struct{})}
}

// Urgent reads come first.
func (r *reads) request(urgent bool, services ...string) {
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

// repeatActive requests a second read of all services being read: a change may concern instances
// that their current reads have yet to show.
func (r *reads) repeatActive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.active {
		r.active[name] = true
	}
}

// next waits for the next service to read; it returns false when ctx has ended.
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
			if r.waiting[name] { // else the urgent queue had it, too, and it was taken from there
				delete(r.waiting, name)
				r.active[name] = false
				return name, true
			}
		}
	}
	return "", false
}

// done notes the end of a read. A failed read is requested again. It returns how long to wait
// before the next read.
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
		r.request(false, name)
	}
	return wait
}

// idle says whether no service waits or is being read.
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

// errSuspect means that Consul must be probed before any answer is trusted.
var errSuspect = errors.New("a query of Consul has failed meanwhile")

// readOne fails if the answer cannot be trusted.
func (d *datacenter) readOne(ctx context.Context, name string) error {
	if d.mustProbe() {
		d.recover(ctx)
	}
	round, number, end := d.round(ctx)
	defer end()
	q := d.service(name)
	entries, meta, err := request(round, d, q, 0)
	var a answer
	if err == nil {
		a = answer{instancesOf(&d.r.o, entries), meta.ResultsFilteredByACLs, meta.LastIndex}
		if d.r.catalog.wouldWithdraw(d.name, name, a) {
			err = d.hasItsData(round, number)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case round.Err() != nil:
		return round.Err() // a new round has begun
	case err != nil:
		d.addFailure(q.String(), err)
		return err
	case d.mustProbe():
		return errSuspect
	}
	d.clearFailure(q.String())
	d.setAnswer(number, name, a)
	return nil
}
