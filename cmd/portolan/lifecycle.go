package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	sides "github.com/portolan-mesh/portolan/cache/side"
	"github.com/portolan-mesh/portolan/xds"
)

// lifecycleFlags say for how long proxies stay with a server.
type lifecycleFlags struct {
	maxAge     time.Duration
	drain      time.Duration
	firstSyncs int
	balance    time.Duration
}

const (
	defaultMaxAge = 30 * time.Minute
	defaultDrain  = 5 * time.Second
	maxDrain      = time.Hour
	// drainGrace is for the last streams to end.
	drainGrace = time.Second
	// ageGrace is how long a connection that is too old may go on, if that is not
	// more than its age: its client opens the next one meanwhile.
	ageGrace       = 10 * time.Second
	defaultBalance = 10 * time.Second
	minBalance     = 100 * time.Millisecond
)

func (o *lifecycleFlags) register(f *pflag.FlagSet) {
	f.DurationVar(&o.maxAge, "max-connection-age", defaultMaxAge, "for how long a proxy stays connected, a tenth more or less; then it connects anew, maybe to another server; 0 is for ever")
	f.DurationVar(&o.drain, "drain-time", defaultDrain, "time over which a server that stops sends its proxies to the others; nothing is waited for where there is no other")
	f.DurationVar(&o.balance, "balance-interval", defaultBalance, "how often a server that has many more proxies than the others sends some of them away; 0 is never")
	f.IntVar(&o.firstSyncs, "max-first-syncs", 100, "how many proxies are brought up from nothing at one time; others wait in the order in which they came, a hundred times as many at most")
}

func (o *lifecycleFlags) validate(add addFault) {
	if o.maxAge < 0 || o.maxAge > 0 && o.maxAge < time.Second {
		add("max-connection-age", "%s is neither 0 nor a second or more", o.maxAge)
	}
	if o.drain < 0 || o.drain > maxDrain {
		add("drain-time", "%s is not between 0 and %s", o.drain, maxDrain)
	}
	if o.balance < 0 || o.balance > 0 && o.balance < minBalance {
		add("balance-interval", "%s is neither 0 nor %s or more", o.balance, minBalance)
	}
	if o.firstSyncs < 1 {
		add("max-first-syncs", "%d is less than 1", o.firstSyncs)
	}
}

// options are those of the gRPC server that proxies connect to.
func (o *lifecycleFlags) options() []grpc.ServerOption {
	parameters := keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}
	if o.maxAge > 0 {
		parameters.MaxConnectionAge, parameters.MaxConnectionAgeGrace = o.maxAge, min(ageGrace, o.maxAge)
	}
	return append(xds.ServerOptions(),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(parameters),
	)
}

// proxyPort is the port that proxies connect to.
type proxyPort struct {
	xds       *xds.DiscoveryServer
	conns     *xds.Conns
	grpc      *grpc.Server
	lifecycle lifecycleFlags
	replicas  replicas
	logger    *slog.Logger
}

// newProxyPort makes the port on a listener, for a server that is still to be
// made and hangs up on clients by it.
func newProxyPort(l net.Listener, lifecycle lifecycleFlags, logger *slog.Logger) *proxyPort {
	return &proxyPort{
		conns: xds.NewConns(l), grpc: grpc.NewServer(lifecycle.options()...), lifecycle: lifecycle, logger: logger,
	}
}

// serve serves until ctx ends.
func (p *proxyPort) serve(ctx context.Context) error {
	p.xds.Register(p.grpc)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() {
		<-ctx.Done()
		p.grpc.Stop() // streams never end by themselves
	})
	if err := p.grpc.Serve(p.conns); err != nil {
		return fmt.Errorf("serve xDS: %w", err)
	}
	<-ctx.Done() // a port that drains has ended before
	return nil
}

// drain sends the proxies to the other servers, where there are any, and takes
// no more. It returns when all have gone, the time is over, or ctx ends.
func (p *proxyPort) drain(ctx context.Context) {
	if p.lifecycle.drain == 0 || len(p.replicas.others()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.lifecycle.drain+drainGrace)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.grpc.GracefulStop() // tells clients to connect elsewhere, and waits for their streams
	}()
	p.xds.Drain(ctx, p.lifecycle.drain)
	select {
	case <-gone:
	case <-ctx.Done():
		p.grpc.Stop()
		<-gone
	}
}

// know makes the other servers known to the port.
func (p *proxyPort) know(r replicas, metrics prometheus.Registerer) error {
	p.replicas = r
	return metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portolan_replicas", Help: "Servers of the store that report to one another, this one among them.",
	}, func() float64 { return float64(1 + len(r.others())) }))
}

// replicas are the servers of a store, as they report to one another.
type replicas struct {
	id   string // of this one
	side *sides.Cache
}

// others are how many proxies each of the other servers has.
func (r replicas) others() []int {
	facts, _ := r.side.Facts()
	if facts == nil {
		return nil
	}
	var out []int
	for _, report := range facts.Replicas.All() {
		if report.ID != r.id {
			out = append(out, report.Proxies)
		}
	}
	return out
}

// balance moves proxies away, a few at a time, while this server has many more
// than the others have on average.
func (p *proxyPort) balance(ctx context.Context) error {
	if p.lifecycle.balance == 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(p.lifecycle.balance)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		own := p.xds.Connections()
		if n := surplus(own, p.replicas.others()); n > 0 {
			p.logger.Info("moving proxies to other servers, which have fewer", "proxies", own, "moved", p.xds.Move(n))
		}
	}
}

// surplus is how many proxies a server moves away at a time: a tenth of what it
// has beyond the average of all servers, once that is a fifth of the average and
// more than two.
func surplus(own int, others []int) int {
	sum, servers := own, 1+len(others)
	for _, n := range others {
		sum += n
	}
	mean := (sum + servers - 1) / servers
	over := own - mean
	if servers == 1 || over <= max(2, mean/5) {
		return 0
	}
	return (over + 9) / 10
}
