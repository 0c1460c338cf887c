package registration

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

const (
	// interval is how often claims are looked at while nothing happens: leases are renewed, and
	// what failed is tried again. pause is the least time between two looks.
	interval, pause = time.Second, 20 * time.Millisecond
	// renewals is how often a lease is renewed within its TTL.
	renewals = 3
	// atOnce bounds the claims that wait for the store at one time.
	atOnce = 16
	// callLimit bounds the calls of the store for one claim.
	callLimit = 5 * time.Second
)

// Options configure a Registrar.
type Options struct {
	// Server names the server. No other server has the name, nor had it before.
	Server string
	// Store keeps the entries.
	Store storage.Leaser
	// Entry returns an entry as the store has it, nil for none, and Group a group of any
	// source. Await waits until Entry knows what the store has at a version.
	Entry func(config.Key) *config.Config
	Group func(config.Key) *config.Config
	Await func(ctx context.Context, version string) error
	// Synced says whether Entry and Group have read their sources.
	Synced func() bool
	// Unproved returns why a proxy of the server's own machine that has proved no identity may
	// not be registered, nil if it may.
	Unproved func() error
	// TTL is how long an entry outlives its server, or its proxy's stream; 0 stands for
	// storage.DefaultLease.
	TTL time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Registrar keeps the entries of the proxies that are connected to a server. It is safe for
// concurrent use.
type Registrar struct {
	o       Options
	metrics *metrics
	wakes   chan struct{}

	mu      sync.Mutex // guards the fields below
	joined  int        // how many streams have ever joined
	claims  map[config.Key]*claim
	changed int64 // how often Outcomes may have changed
}

// New makes a Registrar, and registers its metrics.
func New(o Options) *Registrar {
	o.TTL = cmp.Or(o.TTL, storage.DefaultLease)
	r := &Registrar{o: o, wakes: make(chan struct{}, 1), claims: map[config.Key]*claim{}}
	r.metrics = newMetrics(o.Registerer, r)
	return r
}

// Join tells the Registrar of the stream of a proxy. The caller calls leave when the stream has
// ended. Neither blocks. A proxy that asks for no group is ignored.
func (r *Registrar) Join(p *discovery.Proxy) (leave func()) {
	if p.Group == "" || len(p.IPAddresses) == 0 {
		return func() {}
	}
	s, key := &stream{proxy: p, since: time.Now()}, keyOf(p)
	r.mu.Lock()
	r.joined++
	s.order = r.joined
	c := r.claims[key]
	if c == nil {
		c = &claim{key: key}
		r.claims[key] = c
	}
	c.streams = append(c.streams, s)
	r.mu.Unlock()
	r.Wake()
	return func() {
		r.mu.Lock()
		c.streams = slices.DeleteFunc(c.streams, func(other *stream) bool { return other == s })
		r.changed++
		r.mu.Unlock()
		r.Wake()
	}
}

// Wake has the Registrar look whether entries are as they should be. Call it when an entry or a
// group has changed. It never blocks.
func (r *Registrar) Wake() {
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wakes:
		case <-timer.C:
		}
		if r.o.Synced() {
			r.step(ctx)
		}
		timer.Reset(r.rest())
		select { // wake-ups that come meanwhile are one
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// rest returns how long to wait if nothing happens. Without claims nothing is to be done.
func (r *Registrar) rest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.claims) == 0 {
		return time.Hour
	}
	return interval
}

// step looks at all claims once, and does what they need.
func (r *Registrar) step(ctx context.Context) {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, c := range r.due() {
		work.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, callLimit)
			defer cancel()
			r.settle(ctx, c)
			return nil
		})
	}
	_ = work.Wait() // it returns no errors
}

// due returns the claims that need a call of the store, and drops those without streams after a
// last renewal.
func (r *Registrar) due() []*claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*claim
	for key, c := range r.claims {
		if len(c.streams) == 0 {
			delete(r.claims, key)
			if c.lease != 0 { // the proxy has the whole TTL to come back
				c.next = action{verb: renew}
				out = append(out, c)
			}
			continue
		}
		before := c.outcomes()
		c.choose(r.o)
		if c.next = c.decide(r.o); c.next.verb != rest {
			out = append(out, c)
		}
		if !slices.Equal(before, c.outcomes()) {
			r.changed++
			r.tell(before, c.outcomes())
		}
	}
	return out
}

// tell logs and counts what has become of streams.
func (r *Registrar) tell(before, now []Outcome) {
	for _, o := range now {
		if slices.Contains(before, o) {
			continue
		}
		switch o.State {
		case Refused:
			r.metrics.refused.Inc()
			r.o.Logger.Warn("refusing to register a proxy", "proxy", o.Node, "group", o.Group.String(), "err", o.Reason)
		case Waiting:
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
	now := time.Now()
	switch c.next.verb {
	case remove:
		ctx = storage.WithOrigin(ctx, storage.Origin{User: "portolan", Message: "the WorkloadGroup of the machine is gone, or is not for it any more"})
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
			r.Wake()
			return nil
		case err != nil:
			return err
		}
		c.renewed = now
		return nil
	}
	return r.put(ctx, c, now)
}

// put writes the entry of a claim under its lease.
func (r *Registrar) put(ctx context.Context, c *claim, now time.Time) (err error) {
	if c.lease == 0 {
		if c.lease, err = r.o.Store.Grant(ctx, r.o.TTL); err != nil {
			return err
		}
		c.renewed = now
	}
	ctx = storage.WithOrigin(ctx, storage.Origin{User: c.next.by.account(), Message: "registered by the proxy " + c.next.by.proxy.ID})
	_, results, err := r.o.Store.Apply(ctx, []storage.Op{{Verb: storage.Put, Config: c.next.object, Lease: c.lease}})
	switch {
	case errors.Is(err, storage.ErrNotFound):
		c.lease = 0 // it has ended: the next step gets another
		r.Wake()
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
	if c.written == nil || c.written.by != c.next.by {
		r.metrics.registered.Inc()
		r.o.Logger.Info("proxy registered", "proxy", c.next.by.proxy.ID, "key", c.key.String())
	}
	c.written = &written{by: c.next.by, group: c.next.group}
	r.Wake() // to say so
	return nil
}
