package health

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/xds/names/probe"
)

// Options configure a Prober. Check and Report are required.
type Options struct {
	// Check makes one check, within the timeout of the probe: Checker.Check. What says what it asks.
	Check func(context.Context, *probe.Probe) error
	What  func(*probe.Probe) string
	// Proxy says why the proxy of the machine takes no requests, nil if it does. A nil Proxy means
	// that there is none to ask.
	Proxy func(context.Context) error
	// Report tells the servers. It is called one at a time, for changes alone.
	Report func(ctx context.Context, healthy bool, why string)
	// Spread returns a number in [0, 1); nil stands for a random one.
	Spread func() float64
	// Logger may be nil; nothing is logged then.
	Logger *slog.Logger
}

// Prober runs the probe of a machine. Several goroutines may use it.
type Prober struct {
	o       Options
	changed chan struct{}

	mu    sync.Mutex // guards the fields below
	probe *probe.Probe
	judge judge
	why   string // why the last check failed; empty if it did not
	at    time.Time
	// failure is why the last check failed that did.
	failure string
	proxy   *result // of the proxy; nil before the first
	last    *Report
	counts  Counts
}

// Status is what is known of the workload.
type Status struct {
	// Probe says what is checked, and Origin which object says so.
	Probe  string `json:"probe"`
	Origin string `json:"origin"`
	State  State  `json:"state"`
	// Since is since when. Zero for an unknown state.
	Since time.Time `json:"since,omitzero"`
	// Result is why the last check failed; empty if it did not. At is when it was, zero before the
	// first, and InTurn how many in turn had the same outcome.
	Result string    `json:"result,omitempty"`
	At     time.Time `json:"at,omitzero"`
	InTurn int32     `json:"inTurn"`
	// Report is what was reported last, nil for nothing.
	Report *Report `json:"report,omitempty"`
}

// Report is what the servers were told.
type Report struct {
	Healthy bool      `json:"healthy"`
	Why     string    `json:"why,omitempty"`
	At      time.Time `json:"at"`
}

// Counts are numbers since the beginning.
type Counts struct{ Checks, Failures, Reports uint64 }

// result is the result of a check.
type result struct {
	ofProxy bool
	err     error
}

// How often the proxy is asked: while it takes requests, and while it does not.
const proxyEvery, proxyAgain = time.Second, 100 * time.Millisecond

// New returns a Prober.
func New(o Options) *Prober {
	if o.Spread == nil {
		o.Spread = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Prober{o: o, changed: make(chan struct{}, 1), judge: judge{state: Unknown}}
}

// Follow takes the resource probe.Name as it comes, changes and goes (relay.Follower).
func (p *Prober) Follow(set []*discoveryv3.Resource, removed []string) {
	if slices.Contains(removed, probe.Name) {
		p.become(nil)
	}
	for _, r := range set {
		next := &probe.Probe{}
		if err := proto.Unmarshal(r.GetResource().GetValue(), next); err != nil {
			p.o.Logger.Error("the probe cannot be read: the agent goes on with what it has", "err", err)
			continue
		}
		p.become(next)
	}
}

func (p *Prober) become(next *probe.Probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if proto.Equal(p.probe, next) {
		return
	}
	p.probe = next
	p.judge.restart()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Status returns what is known; nil without a probe.
func (p *Prober) Status() *Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probe == nil {
		return nil
	}
	return &Status{
		Probe: p.o.What(p.probe), Origin: p.probe.GetOrigin(), State: p.judge.state, Since: p.judge.since,
		Result: p.why, At: p.at, InTurn: p.judge.inTurn, Report: p.last,
	}
}

// Counts returns the numbers so far.
func (p *Prober) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Run checks and reports until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		now := p.probe
		p.mu.Unlock()
		if now == nil {
			p.withdraw(ctx)
			select {
			case <-p.changed:
			case <-ctx.Done():
			}
			continue
		}
		p.o.Logger.Info("the workload is probed", "probe", p.o.What(now), "of", now.GetOrigin(), "every", now.GetPeriod().AsDuration())
		p.follow(ctx, now)
	}
}

// follow runs one probe until another takes its place.
func (p *Prober) follow(ctx context.Context, now *probe.Probe) {
	checks, cancel := context.WithCancel(ctx)
	group, checks := errgroup.WithContext(checks)
	defer func() {
		cancel()
		_ = group.Wait() // none of them fails
	}()
	results := make(chan result)
	tell := func(r result) {
		select {
		case results <- r:
		case <-checks.Done():
		}
	}
	if p.o.Proxy != nil {
		group.Go(func() error { p.watchProxy(checks, tell); return nil })
	}
	group.Go(func() error { p.checkWorkload(checks, now, tell); return nil })
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			return
		case r := <-results:
			p.take(ctx, now, r)
		}
	}
}

func (p *Prober) watchProxy(ctx context.Context, tell func(result)) {
	for {
		err, every := p.o.Proxy(ctx), proxyEvery
		if err != nil {
			every = proxyAgain
		}
		tell(result{ofProxy: true, err: err})
		if retry.Sleep(ctx, every) != nil {
			return
		}
	}
}

// checkWorkload checks first after the initial delay, and the second time after a fraction of the
// period: so machines that start together spread their checks.
func (p *Prober) checkWorkload(ctx context.Context, now *probe.Probe, tell func(result)) {
	period := now.GetPeriod().AsDuration()
	if retry.Sleep(ctx, now.GetInitialDelay().AsDuration()) != nil {
		return
	}
	next := time.Now().Add(time.Duration(p.o.Spread() * float64(period)))
	for {
		tell(result{err: p.o.Check(ctx, now)})
		if retry.Sleep(ctx, time.Until(next)) != nil {
			return
		}
		next = time.Now().Add(period)
	}
}

// take takes a result, and reports what it changes.
func (p *Prober) take(ctx context.Context, now *probe.Probe, r result) {
	p.mu.Lock()
	switch {
	case r.ofProxy:
		p.proxy = &r
	default:
		p.at, p.why = time.Now(), ""
		p.counts.Checks++
		if r.err != nil {
			p.counts.Failures++
			p.why = r.err.Error()
			p.failure = p.why
		}
		p.judge.take(r.err == nil, now, p.at)
	}
	report, due := p.due()
	p.mu.Unlock()
	if due {
		p.report(ctx, report)
	}
}

// due returns the report that is to be made; false for none. The caller holds mu.
func (p *Prober) due() (Report, bool) {
	if p.judge.state == Unknown || p.o.Proxy != nil && p.proxy == nil {
		return Report{}, false
	}
	out := Report{Healthy: p.judge.state == Healthy, At: time.Now()}
	switch {
	case p.proxy != nil && p.proxy.err != nil:
		out.Healthy, out.Why = false, p.proxy.err.Error()
	case !out.Healthy:
		out.Why = p.failure
	}
	return out, p.last == nil || p.last.Healthy != out.Healthy
}

func (p *Prober) report(ctx context.Context, now Report) {
	p.mu.Lock()
	p.last = &now
	p.counts.Reports++
	p.mu.Unlock()
	if now.Healthy {
		p.o.Logger.Info("the workload is healthy")
	} else {
		p.o.Logger.Warn("the workload is unhealthy: its clients are told", "why", now.Why)
	}
	p.o.Report(ctx, now.Healthy, now.Why)
}

// withdraw ends the reports when there is no probe any more. A machine without a probe counts as
// healthy, and its last report must not say otherwise.
func (p *Prober) withdraw(ctx context.Context) {
	p.mu.Lock()
	if p.probe != nil { // one has come
		p.mu.Unlock()
		return
	}
	ill := p.last != nil && !p.last.Healthy
	p.judge, p.why, p.at, p.proxy = judge{state: Unknown}, "", time.Time{}, nil
	if !ill {
		p.last = nil
	}
	p.mu.Unlock()
	if ill {
		p.report(ctx, Report{Healthy: true, At: time.Now()})
	}
}

// Problem says why the workload is not ready; nil if it is, and without a probe.
func (p *Prober) Problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.probe == nil, p.judge.state == Healthy:
		return nil
	case p.judge.state == Unknown:
		return fmt.Errorf("the probe of %s has no result yet", p.probe.GetOrigin())
	}
	return fmt.Errorf("the workload is unhealthy: %s", p.failure)
}
