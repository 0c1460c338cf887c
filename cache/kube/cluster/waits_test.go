package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaits: a request waits after a failure until it is due, until another resource is followed again, or until
// its context ends.
func TestWaits(t *testing.T) {
	const least, most = time.Second, 15 * time.Second
	type step struct {
		name        string
		before      func(w *waits, l *link)
		during      func(l *link, end func())
		after, upTo time.Duration // how long it waits
	}
	none := func(*link, func()) {}
	fail := func(w *waits, _ *link) { w.failed() }
	for name, steps := range map[string][]step{
		"they lengthen": {
			{"nothing failed", func(*waits, *link) {}, none, 0, 0},
			{"a failure", fail, none, least, 2 * least},
			{"the next one", fail, none, 2 * least, 4 * least},
			{"nothing failed again", func(*waits, *link) {}, none, 0, 0},
			{"many", func(w *waits, _ *link) {
				for range 10 {
					w.next()
				}
				w.failed()
			}, none, most, 2 * most},
			{"a healthy time later", func(w *waits, _ *link) { time.Sleep(healthyFor + time.Second); w.failed() }, none, least, 2 * least},
		},
		"the cluster answers": {
			{"many failures", func(w *waits, _ *link) {
				for range 10 {
					w.next()
				}
				w.failed()
			}, func(l *link, _ func()) { l.wake() }, 0, 0},
			{"the waits begin anew", fail, none, least, 2 * least},
			{"it answered since the failure", func(w *waits, l *link) { w.failed(); l.wake() }, none, 0, 0},
			{"it answered before", func(w *waits, l *link) { l.wake(); w.failed() }, none, least, 2 * least},
		},
		"the end": {
			{"a failure", fail, func(_ *link, end func()) { end() }, 0, 0},
		},
		"expired watches": {
			{"no list before", func(w *waits, _ *link) { w.expired() }, none, 0, 0},
			{"a list before", func(w *waits, _ *link) { w.listed(); w.expired() }, none, least, 2 * least},
			{"long before", func(w *waits, _ *link) { w.listed(); time.Sleep(most); w.expired() }, none, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &link{o: Options{RetryMin: least, RetryMax: most}, found: make(chan struct{})}
				w := newWaits(l)
				for _, s := range steps {
					ctx, end := context.WithCancel(t.Context())
					s.before(w, l)
					began, done := time.Now(), make(chan error)
					go func() { done <- w.wait(ctx) }()
					synctest.Wait()
					select {
					case err := <-done:
						if err != nil || s.upTo != 0 {
							t.Errorf("%s: it does not wait: %v", s.name, err)
						}
						end()
						continue
					default:
					}
					s.during(l, end)
					err := <-done
					if waited := time.Since(began); waited < s.after || waited > s.upTo || (err != nil) != (ctx.Err() != nil) {
						t.Errorf("%s: it waits for %s: %v", s.name, waited, err)
					}
					end()
				}
			})
		})
	}
}
