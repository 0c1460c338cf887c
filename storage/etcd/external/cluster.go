package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// Defaults of Options.
const (
	DefaultInterval = 2 * time.Second
	DefaultGrace    = 6 * time.Second
)

const (
	// timeout bounds one probe.
	timeout = 3 * time.Second
	// refusals is how many probes in a row must find no endpoint that takes a connection
	// before the cluster counts as away. An election does not cause that.
	refusals = 2
	// repeat is how often the log repeats why the cluster cannot be used.
	repeat = time.Minute
)

// Options of a Cluster.
type Options struct {
	// Dial says how to reach the cluster.
	Dial dial.Options
	// Logger gets a line when the cluster becomes unusable, and when it can be used
	// again; nil discards them.
	Logger *slog.Logger
	// Interval is the time between two probes; 0 is DefaultInterval.
	Interval time.Duration
	// Grace is how long the cluster may be silent before it counts as away: time to
	// elect another leader. A cluster that takes no connections counts as away earlier.
	// 0 is DefaultGrace.
	Grace time.Duration
}

// Cluster is an etcd cluster that somebody else runs.
type Cluster struct {
	o      Options
	client *clientv3.Client

	state atomic.Pointer[state]
	heard atomic.Pointer[time.Time] // when it last answered; New sets it
	calls dial.Calls

	// Only the goroutine that probes uses the fields below: the caller of Start, then of
	// Run.
	refused  int             // probes in a row for which no endpoint took a connection
	flaws    map[string]bool // versions whose flaws are logged
	toldAt   time.Time       // when the log last said why the cluster cannot be used; zero while it can
	versions time.Time       // when to check the versions again
}

// state is the last known state of a cluster.
type state struct {
	since time.Time
	// err is why the cluster cannot be used, nil if it can.
	err error
	// silent says that the cluster does not answer at all.
	silent bool
}

// New makes a Cluster. It does not connect. The caller closes the Cluster.
func New(o Options) (*Cluster, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	c := &Cluster{o: o, flaws: map[string]bool{}}
	now := time.Now()
	c.heard.Store(&now)
	c.state.Store(&state{since: now, err: errors.New("etcd was not asked yet")})
	d := o.Dial
	d.Retries = 40 // a second or two
	d.GRPC = append([]grpc.DialOption{grpc.WithChainUnaryInterceptor(c.gate)}, d.GRPC...)
	client, err := dial.New(d)
	if err != nil {
		return nil, err
	}
	c.client = client
	return c, nil
}

// Client returns the client of the cluster. Close closes it.
func (c *Cluster) Client() *clientv3.Client { return c.client }

// Close closes the client.
func (c *Cluster) Close() error { return c.client.Close() }

// Ready returns nil if the cluster can be read and written, or why not, in words
// for an operator.
func (c *Cluster) Ready() error {
	s := c.state.Load()
	if s.silent {
		return fmt.Errorf("etcd has not answered for %s: %w", time.Since(s.since).Round(time.Second), s.err)
	}
	return s.err
}

// Start checks whether the cluster can be used. It returns within five seconds. It fails
// only if waiting would not help, with all reasons at once: the process should then end,
// and an operator must fix them.
func (c *Cluster) Start(ctx context.Context) error {
	err := c.ask(ctx)
	var refusal *refusalError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refusal) && !refusal.writes:
		return err
	case err == nil || refusal != nil:
		c.note(err)
		return nil
	}
	if fault := c.faults(ctx); fault.lasting {
		return fault.err
	} else if fault.err != nil {
		err = fault.err
	}
	// It has never answered, so the grace period does not apply.
	c.setState(&state{since: time.Now(), err: err, silent: true})
	return nil
}

// Run probes the cluster until ctx ends, and then returns nil. Call it once, after
// Start.
func (c *Cluster) Run(ctx context.Context) error {
	ticker := time.NewTicker(c.o.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := c.ask(ctx)
		if ctx.Err() == nil {
			c.updateState(ctx, err)
		}
	}
}

// updateState derives the state from the result of a probe.
func (c *Cluster) updateState(ctx context.Context, err error) {
	var refusal *refusalError
	if err == nil || errors.As(err, &refusal) {
		c.note(err)
		return
	}
	if c.refused++; c.client.ActiveConnection().GetState() != connectivity.TransientFailure {
		c.refused = 0
	}
	since := *c.heard.Load()
	if !c.state.Load().silent && time.Since(since) < c.o.Grace && c.refused < refusals {
		return
	}
	if fault := c.faults(ctx); fault.err != nil {
		err = fault.err
	}
	if s := c.state.Load(); s.silent {
		since = s.since
	}
	c.setState(&state{since: since, err: err, silent: true})
}

// note records an answer: err is why the cluster cannot be used, nil if it can.
func (c *Cluster) note(err error) {
	now := time.Now()
	c.heard.Store(&now)
	c.refused = 0
	next := &state{since: now, err: err}
	if before := c.state.Load(); before.err != nil {
		next.since = before.since
	}
	c.setState(next)
}

// setState logs a change of the state, and from time to time an error that lasts.
func (c *Cluster) setState(next *state) {
	before := c.state.Swap(next)
	if next.silent && !before.silent {
		c.calls.Cut()
	}
	now := time.Now()
	switch {
	case next.err == nil && before.err != nil && !c.toldAt.IsZero():
		c.o.Logger.Info("etcd can be used again", "after", now.Sub(before.since).Round(time.Millisecond))
		c.toldAt = time.Time{}
	case next.err != nil && (c.toldAt.IsZero() || before.err == nil || before.silent != next.silent || now.Sub(c.toldAt) >= repeat):
		c.o.Logger.Warn("etcd cannot be used, it is asked again and again", "err", next.err, "endpoints", c.o.Dial.Endpoints)
		c.toldAt = now
	}
}

// asking is the context key that marks probes, which the gate lets through.
type asking struct{}

// gate is a grpc.UnaryClientInterceptor. It uses the error text by which etcd's client
// says that a request was not sent. Calls under way end when the cluster is found to be
// away; probes do not wait for a connection.
func (c *Cluster) gate(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if ctx.Value(asking{}) != nil {
		return invoke(ctx, method, request, answer, conn, append(opts, grpc.WaitForReady(false))...)
	}
	if c.state.Load().silent {
		return status.Errorf(codes.Unavailable, "there is no connection available: %v", c.Ready())
	}
	return c.calls.Unary(ctx, method, request, answer, conn, invoke, opts...)
}

var upDesc = prometheus.NewDesc("portolan_store_up", "1 while etcd can be read and written.", nil, nil)

// Describe implements prometheus.Collector.
func (c *Cluster) Describe(out chan<- *prometheus.Desc) { out <- upDesc }

// Collect implements prometheus.Collector.
func (c *Cluster) Collect(out chan<- prometheus.Metric) {
	up := 0.0
	if c.Ready() == nil {
		up = 1
	}
	out <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, up)
}
