package xds

import (
	"sync/atomic"
	"time"
)

// alarm rings at a time. It is set anew only for an earlier one than it is set for,
// so that what is put off again and again costs nothing: whoever hears it looks
// whether it is time, and sets it again. Only rang is used by several goroutines.
type alarm struct {
	ring  func()
	timer *time.Timer // nil before it is first set
	at    time.Time   // zero while it is not set
	rang  atomic.Bool
}

func newAlarm(ring func()) *alarm {
	a := &alarm{}
	a.ring = func() {
		a.rang.Store(true)
		ring()
	}
	return a
}

// set has the alarm ring at a time or before; the zero time asks for nothing.
func (a *alarm) set(at time.Time) {
	if a.rang.Swap(false) {
		a.at = time.Time{}
	}
	if at.IsZero() || !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	if a.at = at; a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), a.ring)
	} else {
		a.timer.Reset(time.Until(at))
	}
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// watchdog barks when something that is done again and again takes too long once.
// It sleeps on one timer, which is set once in the time of the limit and not each
// time that something begins. begin and end are called by one goroutine at a time.
type watchdog struct {
	limit time.Duration
	bark  func()
	born  time.Time
	since atomic.Int64 // its age when it began, in nanoseconds; 0 while nothing goes on
	set   atomic.Bool  // the timer runs
	timer *time.Timer
}

func newWatchdog(limit time.Duration, bark func()) *watchdog {
	w := &watchdog{limit: limit, bark: bark, born: time.Now()}
	w.set.Store(true) // until the timer is there
	w.timer = time.AfterFunc(limit, w.awake)
	return w
}

// begin says that it begins.
func (w *watchdog) begin(now time.Time) {
	w.since.Store(max(1, int64(now.Sub(w.born))))
	if w.set.CompareAndSwap(false, true) {
		w.timer.Reset(w.limit)
	}
}

// end says that it has ended.
func (w *watchdog) end() { w.since.Store(0) }

// awake looks what goes on. Where something does the timer is set again, unless what
// began meanwhile has set it.
func (w *watchdog) awake() {
	w.set.Store(false)
	since := w.since.Load()
	if since == 0 {
		return
	}
	left := w.limit - (time.Since(w.born) - time.Duration(since))
	switch {
	case left <= 0:
		w.bark()
	case w.set.CompareAndSwap(false, true):
		w.timer.Reset(left)
	}
}

func (w *watchdog) stop() { w.timer.Stop() }
