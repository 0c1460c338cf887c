package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/identity/secure"
	"github.com/portolan-mesh/portolan/xds"
)

const (
	// drainGrace is extra time for the last streams to end.
	drainGrace = time.Second
	// ageGrace is how long a connection that is too old may go on, if that is not more than
	// its age. Meanwhile its client opens the next one.
	ageGrace = 10 * time.Second
	// maxIdle is how long a connection may be open without a stream.
	maxIdle = time.Minute
)

// grpcOptions returns the options of the gRPC server for proxies. bounds limits how fast
// clients open streams.
func (o *Options) grpcOptions(bounds secure.Streams) []grpc.ServerOption {
	parameters := keepalive.ServerParameters{Time: 30 * time.Second, Timeout: o.silence(), MaxConnectionIdle: maxIdle}
	if o.MaxConnectionAge > 0 {
		parameters.MaxConnectionAge, parameters.MaxConnectionAgeGrace = o.MaxConnectionAge, min(ageGrace, o.MaxConnectionAge)
	}
	return append(xds.ServerOptions(), grpc.Creds(secure.Credentials(bounds)), grpc.ConnectionTimeout(secure.HandshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(parameters), grpc.MaxConcurrentStreams(o.MaxStreamsPerConnection),
	)
}

// silence is how long a machine may not answer before its connection ends. Its registration ends
// half a lease after that, so both take less than the lease.
func (o *Options) silence() time.Duration { return o.MachineLease * 2 / 5 }

// listenForProxies listens where proxies connect. The system ends a connection whose other side is
// gone without a word: it asks in the last three fifths of the silence.
func (o *Options) listenForProxies(flag, address string) (net.Listener, error) {
	part := o.silence() / 5
	return listenBy(net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: max(time.Second, 2*part), Interval: max(time.Second, part), Count: 3},
		Control:         endUnanswered(o.silence()),
	}, flag, address)
}

type proxyPort struct {
	xds      *xds.DiscoveryServer
	conns    secure.Conns // the connections of both ports
	plain    net.Listener
	secured  net.Listener // the port with TLS; nil for none
	socket   net.Listener // the socket; nil for none
	grpc     *grpc.Server
	excess   streamExcess
	replicas replicas
	logger   *slog.Logger

	drainTime, balanceInterval time.Duration
}

// The xDS server is created later, because it needs the port to close connections.
func newProxyPort(on listeners, o *Options) *proxyPort {
	excess := newExcess(o.log(loglevel.XDS))
	p := &proxyPort{
		grpc: grpc.NewServer(o.grpcOptions(excess.bounds(o.MaxStreamsPerConnection))...), excess: excess, logger: o.log(loglevel.XDS),
		drainTime: o.DrainTime, balanceInterval: o.BalanceInterval,
	}
	p.plain = secure.Plain(p.conns.Track(on.xds), "--xds-address", o.log(loglevel.XDS))
	if on.secureXDS != nil {
		p.secured = on.security.xds(p.conns.Track(on.secureXDS))
	}
	if on.xdsSocket != nil {
		p.socket = p.conns.Track(on.xdsSocket)
	}
	return p
}

// serve serves xDS until ctx ends.
func (p *proxyPort) serve(ctx context.Context) error {
	p.xds.Register(p.grpc)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() {
		<-ctx.Done()
		p.grpc.Stop() // streams never end on their own
	})
	var serving errgroup.Group
	serve := func(l net.Listener) {
		serving.Go(func() error {
			if err := p.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				p.grpc.Stop() // ends the other listener, too
				return fmt.Errorf("serve xDS: %w", err)
			}
			return nil
		})
	}
	serve(p.plain)
	for _, l := range []net.Listener{p.secured, p.socket} {
		if l != nil {
			serve(l)
		}
	}
	if err := serving.Wait(); err != nil {
		return err
	}
	<-ctx.Done() // drain may have stopped the server before
	return nil
}

// drain disconnects the proxies so that they connect to the other servers, if there are any,
// and accepts no more. It returns when all have gone, the time is over, or ctx ends.
func (p *proxyPort) drain(ctx context.Context) {
	if p.drainTime == 0 || len(p.replicas.proxiesOfOthers()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.drainTime+drainGrace)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.grpc.GracefulStop() // tells clients to connect elsewhere, and waits for their streams
	}()
	p.xds.Drain(ctx, p.drainTime)
	select {
	case <-gone:
	case <-ctx.Done():
		p.grpc.Stop()
		<-gone
	}
}
