package cluster

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// healthyFor is how long nothing has to fail before the waits begin anew, as in client-go.
const healthyFor = 2 * time.Minute

// waits are the waits of one resource between a failure and the next request. They go from RetryMin to
// RetryMax, and end as soon as another resource is followed again. A Reflector's own cannot be ended.
type waits struct {
	link *link
	next wait.DelayFunc // used by one request at a time

	mu    sync.Mutex      // guards the fields below
	found <-chan struct{} // ends the wait of the next request; nil if that does not wait
	list  time.Time       // of the last list
}

func newWaits(l *link) *waits {
	return &waits{link: l, next: lengthening(&l.o)}
}

func lengthening(o *Options) wait.DelayFunc {
	return wait.Backoff{Duration: o.RetryMin, Cap: o.RetryMax, Factor: 2, Jitter: 1, Steps: 32}.DelayWithReset(clock.RealClock{}, healthyFor)
}

// failed has the next request wait.
func (w *waits) failed() {
	w.link.mu.Lock()
	found := w.link.found
	w.link.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = found
}

// listed notes that a list was taken.
func (w *waits) listed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = time.Now()
}

// expired has the next list wait if there was one a short while ago.
func (w *waits) expired() {
	w.mu.Lock()
	again := time.Since(w.list) < w.link.o.RetryMax
	w.mu.Unlock()
	if again {
		w.failed()
	}
}

// wait waits before a request. It returns the error of ctx if that ends first.
func (w *waits) wait(ctx context.Context) error {
	w.mu.Lock()
	found := w.found
	w.found = nil
	w.mu.Unlock()
	if found == nil {
		return ctx.Err()
	}
	timer := time.NewTimer(w.next())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-found:
		w.next = lengthening(&w.link.o)
	case <-timer.C:
	}
	return ctx.Err()
}
