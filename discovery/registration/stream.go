package registration

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/config"
)

// stream is the stream of a proxy. It implements discovery.Registration. The mutex of the Registrar
// guards what follows claim.
type stream struct {
	registrar *Registrar
	proxy     *discovery.Proxy
	since     time.Time
	changed   func()      // is called when standing changes
	claim     *claim      // nil for a proxy that asks for no group
	ready     atomic.Bool // the proxy has its listeners

	state    node.State
	reason   string
	standing node.Standing
	report   *report // nil before the first
	departed bool

	decided bool // standing is what is known
	asks    bool // somebody has asked for standing

	// Of a stream without a claim: the reports that were written, when the last was begun and whether
	// it says healthy, and why the last was not.
	told        map[config.Key]told
	toldAt      time.Time
	toldHealthy bool
	unheard     string
}

// report is what a machine says of its health.
type report struct {
	healthy bool
	message string
}

// urgent says whether the report is written at once, though another was within the last interval: a
// machine that counts as healthy is not any more. It comes back no sooner than others.
func (r report) urgent(healthy bool) bool { return healthy && !r.healthy }

// told is a report that was written, and the object of which it was.
type told struct {
	uid string
	report
}

// Report implements discovery.Registration.
func (s *stream) Report(healthy bool, message string) { s.note(report{healthy, message}, false) }

// Ready implements discovery.Registration.
func (s *stream) Ready() {
	if s.ready.Swap(true) { // each acknowledged push says so again
		return
	}
	r := s.registrar
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(s.claim)
}

// Depart implements discovery.Registration. An entry that the proxy did not register stays, and is
// reported unhealthy if it heeds reports: nobody would report another one healthy again.
func (s *stream) Depart(message string) { s.note(report{message: message}, true) }

func (s *stream) note(now report, departed bool) {
	r := s.registrar
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.departed {
		return
	}
	s.report = &now
	if s.claim == nil {
		r.reporters[s] = struct{}{}
	} else if departed {
		s.claim.depart(s)
	}
	s.departed = departed
	r.wake(s.claim)
}

// Standing implements discovery.Registration. The entries of a stream without a claim are looked for
// from the first call on: few proxies ask.
func (s *stream) Standing() (node.Standing, bool) {
	r := s.registrar
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.claim == nil && !s.asks {
		s.asks = true
		r.askers[s] = struct{}{}
		r.wake(nil)
	}
	return s.standing, s.decided
}

// stand notes what is known of the registration, and calls out a change. The caller holds mu.
func (s *stream) stand(now node.Standing) {
	if s.decided && now == s.standing {
		return
	}
	s.standing, s.decided = now, true
	s.changed()
}

// Leave implements discovery.Registration.
func (s *stream) Leave() {
	r := s.registrar
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reporters, s)
	delete(r.askers, s)
	r.streams--
	if c := s.claim; c != nil {
		c.streams = slices.DeleteFunc(c.streams, func(other *stream) bool { return other == s })
		if s.departed {
			c.departed = s
		}
		r.changed++
		r.wake(c)
	}
}

// ill says whether the machine has said that it is not healthy.
func (s *stream) ill() bool { return s.report != nil && !s.report.healthy }

// account returns who the history says has written the entry.
func (s *stream) account() string { return cmp.Or(s.proxy.Identity, s.proxy.ID) }

func (s *stream) become(state node.State, reason string) { s.state, s.reason = state, reason }

// mark returns the annotations of the entry that is this stream's.
func (s *stream) mark(server string) [3]string {
	return [3]string{server, s.since.UTC().Format(time.RFC3339Nano), s.proxy.ID}
}
