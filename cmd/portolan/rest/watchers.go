package rest

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/storage/refusal"
)

// slowAfter is how long a watch may take to send something before it may be ended.
const slowAfter = time.Second

// watchers holds the open watches, up to a limit. It may end slow ones.
type watchers struct {
	limit int
	slow  atomic.Int64 // number of watches ended for it

	mu    sync.Mutex // guards the fields below
	open  map[*watcher]struct{}
	ended bool
}

// If the server ends, the watch ends at once. add refuses a watch beyond the limit.
func (w *watchers) add(one *watcher) (remove func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
		one.cancel()
		return func() {}, nil
	case len(w.open) >= w.limit:
		return nil, tooMany(fmt.Sprintf("%d watches are open, as many as may be: end some, or raise --max-watches", w.limit))
	}
	if w.open == nil {
		w.open = map[*watcher]struct{}{}
	}
	w.open[one] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, one)
	}, nil
}

// end ends all watches, and later ones.
func (w *watchers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for one := range w.open {
		one.cancel()
	}
}

// endSlowest ends the watch whose client has been blocked longest; false if none has
// been blocked for slowAfter.
func (w *watchers) endSlowest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var slowest *watcher
	since := time.Now().Add(-slowAfter).UnixNano()
	for one := range w.open {
		if at := one.since(); at < since {
			slowest, since = one, at
		}
	}
	if slowest == nil {
		return false
	}
	slowest.cut()
	return true
}

// tooMany refuses a client for which there is no room.
func tooMany(message string) *apierrors.StatusError {
	return refusal.TooMany(message, 1)
}

// outbox writes to the client of a watch, which another goroutine may end.
type outbox struct {
	w      http.ResponseWriter
	cancel context.CancelFunc
	slow   *atomic.Int64 // counts watches that are cut

	mu      sync.Mutex
	blocked int64 // when the present write began, in Unix nanoseconds; 0 without one
	ended   bool
}

// since is when the present write began; later than any time without one.
func (o *outbox) since() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.blocked == 0 || o.ended {
		return math.MaxInt64
	}
	return o.blocked
}

// cut ends the watch, even in the middle of a write. Its client watches again from where
// it got to, or lists if the history no longer reaches so far.
func (o *outbox) cut() {
	o.cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.slow.Add(1)
	}
	o.ended = true
	_ = http.NewResponseController(o.w).SetWriteDeadline(time.Now())
}

// A client that does not read the text in time loses the connection, so that it cannot
// make the server keep history.
func (o *outbox) write(text []byte) error {
	controller := http.NewResponseController(o.w)
	if err := o.begin(controller); err != nil {
		return err
	}
	_, err := o.w.Write(text)
	if err == nil {
		err = controller.Flush()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blocked = 0
	if !o.ended {
		_ = controller.SetWriteDeadline(time.Time{})
	}
	return err
}

func (o *outbox) begin(controller *http.ResponseController) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return errSlow
	}
	o.blocked = time.Now().UnixNano()
	_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // has no effect on connections without support for deadlines
	return nil
}
