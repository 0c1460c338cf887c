package xds

import (
	"runtime"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// ProxyStatus is what is known of a connected proxy. Its JSON form is an API.
type ProxyStatus struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Namespace string `json:"namespace"`
	Variant   string `json:"variant"`
	Envoy     string `json:"envoy,omitempty"`
	// Revision of the store that all types of the proxy are known to be at.
	Revision       int64     `json:"revision"`
	ConnectedSince time.Time `json:"connectedSince"`
	// StaleSince is since when the newest that concerns the proxy is not
	// acknowledged, the zero time where it is.
	StaleSince time.Time    `json:"staleSince,omitzero"`
	Types      []TypeStatus `json:"types"`
}

// TypeStatus is how well a proxy is in step in one type.
type TypeStatus struct {
	Name  string       `json:"name"`
	State stream.State `json:"state"`
	// Revision that the proxy is known to be at; Version, AckedRevision and
	// AckedNonce are those of the last response it took.
	Revision      int64  `json:"revision"`
	Version       string `json:"version,omitempty"`
	AckedRevision int64  `json:"ackedRevision"`
	AckedNonce    string `json:"ackedNonce,omitempty"`
	// SentRevision and SentNonce are those of a response that it did not answer yet.
	SentRevision int64  `json:"sentRevision,omitempty"`
	SentNonce    string `json:"sentNonce,omitempty"`
	// Message is what the proxy said when it rejected the last response,
	// RejectedRevision and RejectedNonce are those of the response, and Objects name
	// what the rejected resources were built from, as far as that is known.
	Message          string   `json:"message,omitempty"`
	RejectedRevision int64    `json:"rejectedRevision,omitempty"`
	RejectedNonce    string   `json:"rejectedNonce,omitempty"`
	Objects          []string `json:"objects,omitempty"`
	// Sent and Answered are when a response last was; StaleSince is since when the
	// proxy lacks something or has refused it, the zero time where it does not.
	Sent       time.Time `json:"sent,omitzero"`
	Answered   time.Time `json:"answered,omitzero"`
	StaleSince time.Time `json:"staleSince,omitzero"`

	// Waiting is how many changes are held back until the proxy has the clusters that
	// they lead to, and Kept how many resources that are gone it keeps until nothing
	// of it leads to them. Late is how many changes were sent before the proxy had
	// such clusters, as they had waited for too long.
	Waiting int `json:"waiting,omitempty"`
	Kept    int `json:"kept,omitempty"`
	Late    int `json:"late,omitempty"`
}

// progress is what a connection remembers of one type to tell how well the proxy
// is in step.
type progress struct {
	offered int64 // revision of the offer that was last looked at
	grown   int   // how often the client had come to want more then
	changes spans
	latest  span // the last of the changes, alone
	// It is about to ask for more; and all that it lacks is what it cannot give up. See
	// order.Flow.
	expects, stuck bool
	// Of what it has come to ask for because of what changed after the revision owed it
	// did not have all yet, and lacks some: besides what it refused and what it cannot
	// give up, of which nothing was left out at the revision besides.
	owes, lacks   bool
	owed, besides int64

	stale time.Time // since when it is not in step

	rejected string // nonce of the rejection that blamed is about
	blamed   []config.Key

	status stream.Status // as it was then
}

// follow takes note of where the session of the type stands now. What makes a client
// ask for more of it is the last change of another, cause, if there is one; while it
// is about to ask it lacks that.
func (p *progress) follow(session *stream.Session, cause *timing, from origins, now time.Time) {
	st := session.Status()
	switch {
	case st.State == stream.NotSent:
	case st.Offered < p.offered: // the store is another one
		p.latest, p.besides = span{0, st.Offered}, 0
		p.changes = spans{p.latest}
	case st.Offered > p.offered && st.Changed > p.offered:
		p.latest = span{p.offered, st.Offered}
		p.changes = p.changes.with(p.latest)
	}
	if st.State != stream.NotSent {
		p.offered = st.Offered
	}
	if cause != nil && (p.expects || st.Grown != p.grown) {
		p.owe(cause.latest)
	}
	p.grown = st.Grown
	st = p.owing(st)
	switch lacks := st.State == stream.Stale || st.State == stream.Rejected; {
	case !lacks:
		p.stale = time.Time{}
	case p.stale.IsZero():
		p.stale = now
	}
	switch {
	case st.Rejection == nil:
		p.rejected, p.blamed = "", nil
	case st.Rejection.Nonce != p.rejected:
		p.rejected, p.blamed = st.Rejection.Nonce, blame(st.Rejection.Message, session, from)
	}
	p.status = st
}

// slept takes note that the type rested until a revision.
func (p *progress) slept(until int64) {
	if p.status.State == stream.Synced {
		p.offered, p.besides = until, until
	}
}

// owe takes note that the client lacks what a change makes it ask for.
func (p *progress) owe(because span) {
	if because.to == 0 {
		return // it asks of its own accord
	}
	if !p.changes.covers(because) {
		p.changes = p.changes.including(because)
		p.latest = because
	}
	if !p.owes || because.from < p.owed {
		p.owed = because.from
	}
	p.owes, p.lacks = true, true
}

// owing is the status of a type, which of what the client has come to ask for, or is
// about to, knows nothing, nor of what is kept.
func (p *progress) owing(st stream.Status) stream.Status {
	if p.expects && (st.State == stream.NotSent || st.State == stream.Synced) {
		st.State = stream.Stale
	}
	refused := st.State == stream.Rejected && st.Besides == st.Offered
	if !p.expects && (p.stuck || refused || st.State == stream.Synced) {
		p.lacks, p.besides = false, st.Offered
	}
	p.owes = p.owes && st.State != stream.Synced
	if st.Besides = max(st.Besides, p.besides); p.lacks {
		st.Besides = min(st.Besides, p.owed)
	}
	if p.owes {
		st.Revision = min(st.Revision, p.owed)
	}
	return st
}

// standing is where a type stood when a connection last took note of it.
type standing struct {
	status                stream.Status
	waiting, kept, late   int
	sent, answered, stale time.Time
	changes               spans
	blamed                []config.Key
}

// report is where a connection stood after its last turn. It is put into words only
// when somebody asks.
type report struct {
	mu    sync.Mutex       // guards the fields below
	proxy *discovery.Proxy // nil before the first request
	types []standing       // in the order of the server; none before its first turn has ended
	// rests are what order.Flow.Rests said of each type: those that rest stand where they
	// did when they came to, but for the revision.
	rests    []int
	revision int64
}

// rested says whether a type has rested since it was last noted.
func (r *report) rested(i, rests int) bool { return rests != 0 && r.rests[i] == rests }

// standing is where a type stands, by its place.
func (r *report) standing(i int) standing {
	is := r.types[i]
	if r.rests[i] != 0 && is.status.State == stream.Synced {
		is.status.Revision, is.status.Besides, is.status.Offered = r.revision, r.revision, r.revision
	}
	return is
}

func (r *report) of(proxy *discovery.Proxy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proxy = proxy
}

func (r *report) name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proxy == nil {
		return "unknown"
	}
	return r.proxy.ID
}

// takeNote notes where the connection stands.
func (c *Connection) takeNote() {
	if c.proxy == nil {
		return
	}
	now, aggregated := time.Now(), c.wire.one() == ""
	served := c.server.options.Types
	r := &c.report
	if r.rests == nil {
		r.rests = make([]int, len(served))
	}
	for i := range served { // parents before their children
		if r.rested(i, c.flow.Rests(i)) {
			continue
		}
		last := c.types[i]
		if r.rests[i] != 0 {
			last.slept(r.revision)
		}
		last.expects, last.stuck = aggregated && c.flow.Expects(last.url, now), c.flow.Stuck(last.url)
		last.follow(last.session, c.timing(served[i].Parent), origins{c.world, i}, now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.types == nil {
		r.types = make([]standing, len(served))
	}
	r.revision = c.flow.Revision()
	for i := range served {
		rests := c.flow.Rests(i)
		if r.rested(i, rests) {
			continue
		}
		r.rests[i] = rests
		last, is := c.types[i], &r.types[i]
		is.status, is.changes, is.blamed = last.status, last.changes, last.blamed
		is.waiting, is.kept = c.flow.Waiting(last.url)
		is.late, is.sent, is.answered, is.stale = last.late, last.sent, last.answered, last.stale
	}
}

// Status is where the connection stood after its last turn, nil before its first
// one. It may be called by any goroutine.
func (c *Connection) Status() *ProxyStatus {
	r := &c.report
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.types == nil {
		return nil
	}
	st := &ProxyStatus{
		Node: r.proxy.ID, Name: r.proxy.Name, Type: string(r.proxy.Type), Namespace: r.proxy.Namespace,
		Variant: c.variant.String(), Envoy: r.proxy.EnvoyVersion, ConnectedSince: c.since, Revision: -1,
		Types: make([]TypeStatus, 0, len(r.types)),
	}
	for i := range r.types {
		is := r.standing(i)
		ts := is.typeStatus(c.server.options.Types[i].Name)
		if ts.State != stream.NotSent && (st.Revision < 0 || ts.Revision < st.Revision) {
			st.Revision = ts.Revision
		}
		if since := ts.StaleSince; !since.IsZero() && (st.StaleSince.IsZero() || since.Before(st.StaleSince)) {
			st.StaleSince = since
		}
		st.Types = append(st.Types, ts)
	}
	st.Revision = max(st.Revision, 0)
	return st
}

func (is *standing) typeStatus(name string) TypeStatus {
	s := &is.status
	ts := TypeStatus{
		Name: name, State: s.State, Revision: s.Revision,
		Version: s.Acked.Version, AckedRevision: s.Acked.Revision, AckedNonce: s.Acked.Nonce,
		SentRevision: s.Sent.Revision, SentNonce: s.Sent.Nonce,
		Sent: is.sent, Answered: is.answered, StaleSince: is.stale,
		Waiting: is.waiting, Kept: is.kept, Late: is.late,
	}
	if s.Rejection != nil {
		ts.Message, ts.RejectedRevision, ts.RejectedNonce = s.Rejection.Message, s.Rejection.Revision, s.Rejection.Nonce
		for _, key := range is.blamed {
			ts.Objects = append(ts.Objects, key.String())
		}
	}
	return ts
}

// stallsAt is when the oldest response that is under way runs out; zero where
// none is.
func (c *Connection) stallsAt() time.Time {
	var oldest time.Time
	if c.flow == nil {
		return oldest
	}
	for i, t := range c.types {
		if c.flow.Rests(i) == 0 && t.session.InFlight() && (oldest.IsZero() || t.sent.Before(oldest)) {
			oldest = t.sent
		}
	}
	if oldest.IsZero() {
		return oldest
	}
	return oldest.Add(c.server.options.StallTimeout)
}

// wakesAt is when there may be something to do though nothing happens; zero for
// never.
func (c *Connection) wakesAt() time.Time {
	at := c.stallsAt()
	if c.flow == nil {
		return at
	}
	if wake := c.flow.Wake(); at.IsZero() || !wake.IsZero() && wake.Before(at) {
		return wake
	}
	return at
}

func processors() int { return runtime.GOMAXPROCS(0) }
