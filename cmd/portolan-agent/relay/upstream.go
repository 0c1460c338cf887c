package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/portolan-mesh/portolan/storage/retry"
)

// Servers are the servers of the mesh, as the relay reaches them.
type Servers struct {
	// Addresses are host:port each.
	Addresses []string
	// TLS returns the configuration of the next connection: the certificate that the machine has
	// at that time, and the roots that it trusts. A nil TLS means plaintext, for servers on this
	// machine.
	TLS func() (*tls.Config, error)
	// Name is the name in the servers' certificates; empty means the host of each address.
	Name string
	// Explain says more about a handshake that has failed; nil for nothing more.
	Explain func(error) error
}

// freshTLS are credentials that ask for their configuration at each handshake.
type freshTLS struct {
	credentials.TransportCredentials
	server string
	fresh  func() (*tls.Config, error)
	failed *atomic.Pointer[error] // why the last handshake has failed
}

// ClientHandshake implements credentials.TransportCredentials.
func (c freshTLS) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.fresh()
	if err != nil {
		return nil, nil, err
	}
	config.ServerName = c.server
	secure, info, err := credentials.NewTLS(config).ClientHandshake(ctx, c.server, conn)
	if err != nil {
		c.failed.Store(&err)
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials.
func (c freshTLS) Clone() credentials.TransportCredentials { return c }

const (
	connectTimeout = 5 * time.Second
	// The waits between rounds over all servers.
	firstWait, longestWait = 100 * time.Millisecond, 10 * time.Second
	// The relay notices a server that vanished without closing the connection after the sum.
	pingInterval, pingTimeout = 10 * time.Second, 5 * time.Second
)

// connect opens a connection to a server, and returns it once it is there.
func (s Servers) connect(ctx context.Context, address string) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var failed atomic.Pointer[error]
	transport, err := s.credentials(address, &failed)
	if err != nil {
		return nil, err
	}
	var cause error
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return conn, nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			cause = errors.New("the connection fails: it does not listen there, or one side does not accept the other's certificate")
			if why := failed.Load(); why != nil {
				cause = *why
				if s.Explain != nil {
					cause = s.Explain(cause)
				}
			}
		default:
			if conn.WaitForStateChange(ctx, state) {
				continue
			}
			cause = fmt.Errorf("it does not answer: %w", ctx.Err())
		}
		return nil, errors.Join(cause, conn.Close())
	}
}

// order returns the addresses in a random order, which spreads machines over servers.
func (s Servers) order() []string {
	out := make([]string, len(s.Addresses))
	for i, from := range rand.Perm(len(s.Addresses)) {
		out[i] = s.Addresses[from]
	}
	return out
}

// link is a stream to an upstream.
type link[Q, P any] struct {
	server string // its address; empty for the last good configuration
	send   func(Q) error
	// responses are those of the upstream. It is closed when the stream has ended; then err says
	// why.
	responses chan P
	err       error
	cancel    context.CancelFunc
	answered  bool
	// answerWithin is how long the upstream may take for its first response.
	answerWithin time.Duration
}

// stream is what gRPC's streams of both variants have.
type stream[Q, P any] interface {
	Send(Q) error
	Recv() (P, error)
}

// connector finds servers for one stream of a client.
type connector[Q, P any] struct {
	servers Servers
	open    func(context.Context, *grpc.ClientConn) (stream[Q, P], error)
	links   chan *link[Q, P]
	// failed is told why a server is not used.
	failed   func(server string, err error)
	patience time.Duration
}

// run offers a link to a server whenever the last one has ended, until ctx ends. A server that
// answers makes the next wait short again.
func (c *connector[Q, P]) run(ctx context.Context) {
	wait := retry.New(firstWait, longestWait)
	var order []string
	for within := c.patience; ctx.Err() == nil; {
		if len(order) == 0 {
			order = c.servers.order()
		}
		server := order[0]
		order = order[1:]
		answered, err := c.use(ctx, server, within)
		if ctx.Err() != nil {
			return
		}
		c.failed(server, err)
		if answered {
			wait.Reset()
			order, within = without(c.servers.order(), server), c.patience
			continue
		}
		within = min(2*within, time.Minute)
		if len(order) == 0 && wait.Wait(ctx) != nil {
			return
		}
	}
}

// without puts a server that has just ended a stream at the end.
func without(order []string, server string) []string {
	var out []string
	for _, one := range order {
		if one != server {
			out = append(out, one)
		}
	}
	return append(out, server)
}

// use offers one link, and returns when it has ended.
func (c *connector[Q, P]) use(ctx context.Context, server string, within time.Duration) (answered bool, err error) {
	conn, err := c.servers.connect(ctx, server)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, err := c.open(ctx, conn)
	if err != nil {
		return false, err
	}
	l := &link[Q, P]{server: server, send: up.Send, responses: make(chan P), cancel: cancel, answerWithin: within}
	select {
	case c.links <- l:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	began := time.Now()
	answered, err = l.pump(ctx, up.Recv)
	return answered || time.Since(began) > c.patience, err
}

// pump reads the upstream until it ends.
func (l *link[Q, P]) pump(ctx context.Context, receive func() (P, error)) (answered bool, err error) {
	defer close(l.responses)
	for {
		r, err := receive()
		if err != nil {
			l.err = err
			return answered, err
		}
		answered = true
		select {
		case l.responses <- r:
		case <-ctx.Done():
			l.err = ctx.Err()
			return answered, l.err
		}
	}
}

// credentials returns those for a connection to a server. failed gets why a handshake has failed.
func (s Servers) credentials(address string, failed *atomic.Pointer[error]) (credentials.TransportCredentials, error) {
	if s.TLS == nil {
		return insecure.NewCredentials(), nil
	}
	host := s.Name
	if host == "" {
		var err error
		if host, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	return freshTLS{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}), host, s.TLS, failed}, nil
}
