package registration

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// interval is how often claims are looked at while nothing happens: leases are renewed, and
	// what failed is tried again. pause is the least time between two looks.
	interval, pause = time.Second, 20 * time.Millisecond
	// renewals is how often a lease is renewed within its TTL.
	renewals = 3
	// atOnce bounds the claims that wait for the store at one time.
	atOnce = 16
	// massive is how many machines are lost at once when it is the servers that are cut off.
	massive = 3
	// callLimit bounds the calls of the store for one claim.
	callLimit = 5 * time.Second
)

// Options configure a Registrar.
type Options struct {
	// Server names the server. No other server has the name, nor had it before.
	Server string
	// Store keeps the entries, and Health their health.
	Store  storage.Leaser
	Health storage.HealthKeeper
	// Entry returns an entry as the store has it, nil for none, and Group a group of any
	// source. Entries iterates over the entries of a namespace in the store. Await waits until Entry knows what the store has at a version.
	Entry   func(config.Key) *config.Config
	Group   func(config.Key) *config.Config
	Entries func(namespace string) iter.Seq[*config.Config]
	Await   func(ctx context.Context, version string) error
	// Synced says whether Entry and Group have read their sources.
	Synced func() bool
	// Unproved returns why a proxy of the server's own machine that has proved no identity may
	// not be registered, nil if it may.
	Unproved func() error
	// TTL is how long an entry outlives its server. It outlives its proxy's stream by half of that,
	// since a server takes up to the other half to notice that a machine is gone without a word.
	// 0 stands for storage.DefaultLease.
	TTL time.Duration
	// Silence is how long a machine of a group with a probe may be connected without a report
	// before the group says so; 0 stands for a minute.
	Silence time.Duration
	// Others returns how many proxies the other servers have. While no server has any, and this one
	// has lost at least three machines at once, it keeps their entries: then the servers are cut off, and
	// nobody is there to be told. Nil ends each entry for itself.
	Others func() int
	// ComeBack is how long the others have once the first proxy is back; 0 stands for 15 s, since agents
	// try at least every 10 s.
	ComeBack time.Duration
	// Patience is how long a proxy that has no entry yet may take for its listeners, before it gets
	// its entry without them; 0 means that none waits.
	Patience time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Registrar keeps the entries of the proxies that are connected to a server, and writes what they
// report of their health. It is safe for concurrent use. It implements discovery.Registrar.
type Registrar struct {
	o       Options
	metrics *metrics
	wakes   chan struct{}

	mu        sync.Mutex // guards the fields below
	claims    map[config.Key]*claim
	streams   int                  // that are open, also without a claim
	deserted  bool                 // as it was at the last step
	dirty     map[*claim]struct{}  // the claims to look at
	reporters map[*stream]struct{} // the streams without a claim that have reported something
	askers    map[*stream]struct{} // the streams without a claim whose standing somebody asks for
	rewritten bool                 // an entry has changed since the standings of askers were last decided
	changed   int64                // how often Outcomes may have changed
}

// work is a call of the store that a step makes.
type work func(context.Context)

// New makes a Registrar, and registers its metrics.
func New(o Options) *Registrar {
	o.TTL, o.Silence, o.ComeBack = cmp.Or(o.TTL, storage.DefaultLease), cmp.Or(o.Silence, time.Minute), cmp.Or(o.ComeBack, 15*time.Second)
	r := &Registrar{
		o: o, wakes: make(chan struct{}, 1),
		claims: map[config.Key]*claim{}, dirty: map[*claim]struct{}{}, reporters: map[*stream]struct{}{}, askers: map[*stream]struct{}{},
	}
	r.metrics = newMetrics(o.Registerer, r)
	return r
}

// Labels implements discovery.Registrar: a proxy that may be registered has the labels that its entry is
// to have. A gateway has what it states, as with its entry.
func (r *Registrar) Labels(p *discovery.Proxy) labels.Instance {
	if p.Group == "" || len(p.IPAddresses) == 0 || p.Type == discovery.Router {
		return nil
	}
	group := r.o.Group(groupOf(p))
	if group == nil || permit(p, group, r.o.Unproved) != nil {
		return nil
	}
	entry, _ := EntryOf(group, p)
	return entry.Labels
}

// Join implements discovery.Registrar. A proxy that asks for no group gets no entry.
func (r *Registrar) Join(p *discovery.Proxy, changed func()) discovery.Registration {
	s := &stream{registrar: r, proxy: p, since: time.Now(), changed: changed}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams++
	if p.Group == "" || len(p.IPAddresses) == 0 {
		return s
	}
	key := keyOf(p)
	c := r.claims[key]
	if c == nil {
		c = &claim{key: key}
		r.claims[key] = c
	}
	s.claim = c
	c.streams = append(c.streams, s)
	r.wake(c)
	return s
}

// Changed has the Registrar look at what depends on an entry or a group, which has changed. It
// does not block.
func (r *Registrar) Changed(key config.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key.Kind == schema.WorkloadEntry {
		if c := r.claims[key]; c != nil || len(r.reporters)+len(r.askers) > 0 {
			r.rewritten = true
			r.wake(c)
		}
		return
	}
	for _, c := range r.claims {
		if slices.ContainsFunc(c.streams, func(s *stream) bool { return groupOf(s.proxy) == key }) {
			r.wake(c)
		}
	}
}

// wake has the next step look at a claim, if it is not nil, and at the streams without one. The
// caller holds mu.
func (r *Registrar) wake(c *claim) {
	if c != nil {
		r.dirty[c] = struct{}{}
	}
	select {
	case r.wakes <- struct{}{}:
	default:
	}
}

// Run keeps the entries until ctx ends, and then returns nil. Their leases run out, unless
// another server takes them over.
func (r *Registrar) Run(ctx context.Context) error {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	var whole time.Time // when the last step began that looked at all
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wakes:
		case <-timer.C:
		}
		if r.o.Synced() {
			all := time.Since(whole) >= interval
			if all {
				whole = time.Now()
			}
			r.step(ctx, all)
		}
		timer.Reset(r.rest())
		select { // wake-ups that come meanwhile are one
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// rest returns how long to wait if nothing happens. Without streams nothing is to be done.
func (r *Registrar) rest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.claims) == 0 && len(r.reporters) == 0 {
		return time.Hour
	}
	return interval
}

// step looks once at what is dirty, or at all, and does what is to be done.
func (r *Registrar) step(ctx context.Context, all bool) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, do := range r.due(all) {
		group.Go(func() error {
			do(ctx)
			return nil
		})
	}
	_ = group.Wait() // it returns no errors
}

// due returns what is to be done.
func (r *Registrar) due(all bool) []work {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []work
	r.noteDeserted()
	for _, c := range r.claims {
		if _, dirty := r.dirty[c]; (all || dirty) && r.look(c) {
			out = append(out, func(ctx context.Context) { r.settle(ctx, c) })
		}
	}
	clear(r.dirty)
	at := entriesAt{entries: r.o.Entries, known: map[string]map[string][]*config.Config{}}
	r.decideWritten(at)
	return append(out, r.reportersDue(at)...)
}

// noteDeserted notes whether the servers have lost all proxies, massive machines or more of them this
// one. The caller holds mu.
func (r *Registrar) noteDeserted() {
	lost := 0
	if r.streams == 0 && r.o.Others != nil && r.o.Others() == 0 {
		for _, c := range r.claims {
			if c.lease != 0 {
				lost++
			}
		}
	}
	if now := lost >= massive; now != r.deserted {
		r.deserted = now
		if now {
			r.o.Logger.Warn("no server has a proxy any more: the entries of the machines stay until one is back", "machines", lost)
		} else {
			r.o.Logger.Info("proxies are back: the entries of machines that are not go soon", "within", r.o.ComeBack)
		}
	}
}

// look says whether a claim needs a call of the store. It drops a claim without streams, after a
// last call. The caller holds mu.
func (r *Registrar) look(c *claim) bool {
	if len(c.streams) == 0 {
		c.next = c.removing(r.o.Entry(c.key), r.o)
		switch {
		case c.next.verb != rest || c.lease == 0:
			delete(r.claims, c.key)
		case c.ends.IsZero():
			c.ends, c.next.verb = time.Now().Add(r.o.TTL/2), renew // the lease outlasts what follows
		case r.deserted, time.Until(c.ends) > r.o.TTL/2:
			if r.deserted {
				c.ends = time.Now().Add(max(r.o.ComeBack, r.o.TTL/2))
			}
			if c.due(r.o) {
				c.next.verb = renew
			}
		case time.Until(c.ends) <= 0:
			c.next.verb = end // unless another server has taken the entry from the lease
			delete(r.claims, c.key)
		}
		return c.next.verb != rest
	}
	c.ends = time.Time{}
	before := c.outcomes()
	c.choose(r.o)
	c.next = c.decide(r.o)
	if now := c.outcomes(); !slices.Equal(before, now) {
		r.changed++
		r.tellOutcomes(before, now)
	}
	c.tellStandings(r.o.Entry(c.key))
	return c.next.verb != rest
}

// tellOutcomes logs and counts what has become of streams.
func (r *Registrar) tellOutcomes(before, now []Outcome) {
	for _, o := range now {
		if slices.Contains(before, o) {
			continue
		}
		switch o.State {
		case node.Refused:
			r.metrics.refused.Inc()
			r.o.Logger.Warn("refusing to register a proxy", "proxy", o.Node, "group", o.Group.String(), "err", o.Reason)
		case node.Waiting:
			r.o.Logger.Info("a proxy waits for its registration", "proxy", o.Node, "group", o.Group.String(), "for", o.Reason)
		}
	}
}

// settle does what a claim needs. Only one step at a time calls it for a claim, and only steps
// change what it reads.
func (r *Registrar) settle(ctx context.Context, c *claim) {
	err := r.do(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != c.failure {
		r.changed++
	}
	if text != "" && text != c.failure {
		r.o.Logger.Warn("a registration was not written, it will be tried again", "key", c.key.String(), "err", err)
	}
	c.failure = text
}

func (r *Registrar) do(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	now := time.Now()
	switch c.next.verb {
	case remove:
		ctx = storage.WithOrigin(ctx, storage.Origin{User: "portolan", Message: c.next.why})
		version, _, err := r.o.Store.Apply(ctx, []storage.Op{{Verb: storage.Delete, Key: c.key, ResourceVersion: c.next.version}})
		if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrConflict) {
			return nil // it has changed: the next step looks again
		}
		if err != nil {
			return err
		}
		c.written = nil
		return r.o.Await(ctx, version)
	case renew:
		err := r.o.Store.Renew(ctx, c.lease)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			c.lease, c.written = 0, nil // the entry is gone, or goes
			r.again(c)
			return nil
		case err != nil:
			return err
		}
		c.renewed = now
		r.again(c) // there may be a report to write
		return nil
	case end:
		if err := r.o.Store.Revoke(ctx, c.lease); !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		return nil
	case tell:
		if err := r.tell(ctx, c.key, c.next.told); err != nil {
			return err
		}
		c.told, c.toldAt = c.next.told, now
		return nil
	}
	return r.put(ctx, c, now)
}

// put writes the entry of a claim under its lease, or off any.
func (r *Registrar) put(ctx context.Context, c *claim, now time.Time) (err error) {
	off := c.next.written.stays
	if c.lease == 0 && !off {
		if c.lease, err = r.o.Store.Grant(ctx, r.o.TTL); err != nil {
			return err
		}
		c.renewed = now
	}
	by, lease := c.next.written.by, c.lease
	if off {
		lease = storage.OffLease
	}
	ctx = storage.WithOrigin(ctx, storage.Origin{User: by.account(), Message: "registered by the proxy " + by.proxy.ID})
	_, results, err := r.o.Store.Apply(ctx, []storage.Op{{Verb: storage.Put, Config: c.next.object, Lease: lease}})
	switch {
	case errors.Is(err, storage.ErrNotFound):
		c.lease = 0 // it has ended: the next step gets another
		r.again(c)
		return nil
	case errors.Is(err, storage.ErrConflict):
		return nil // another server, or a person, was faster: the next step looks again
	case err != nil:
		return err
	}
	version := results[0].ResourceVersion
	if err := r.o.Await(ctx, version); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if by.state != node.Refused && (c.written == nil || c.written.by != by) {
		r.metrics.registered.Inc()
		r.o.Logger.Info("proxy registered", "proxy", by.proxy.ID, "key", c.key.String())
	}
	done := c.next.written
	c.written = &done
	if off {
		c.lease = 0 // nothing is under it
	}
	r.wake(c) // to say so
	return nil
}

// again has the next step look at a claim.
func (r *Registrar) again(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake(c)
}
