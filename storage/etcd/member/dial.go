package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A reach is how patient a client is with a server that is away.
type reach struct {
	reconnect time.Duration // the longest pause between two attempts to connect
	retries   uint          // of a read, every 25 ms; zero is etcd's own 100
}

// A server elsewhere is not hurried. One on this machine is back soon or, in a
// second, not at all.
var (
	far  = reach{reconnect: time.Second}
	near = reach{reconnect: 200 * time.Millisecond, retries: 40}
)

// Dial returns a client of the member behind one unix:///path endpoint, as
// Child.Start returns it, or of an etcd cluster at host:port endpoints. It
// does not connect: the first call does, and if the server goes away the
// client connects again by itself, within a second of its return. A dead
// connection is noticed after 13 seconds. The logger takes what the client
// says, at Debug; nil discards it. The caller closes the client.
func Dial(endpoints []string, logger *slog.Logger) (*clientv3.Client, error) {
	return dial(endpoints, logger, far)
}

// Dial returns a client of the child's store. It is that of the function Dial,
// but while the process is known to be down, or not to answer, calls fail
// within about a second, and writes at once, with the reason. Call it after
// Start.
func (c *Child) Dial(logger *slog.Logger) (*clientv3.Client, error) {
	return dial([]string{c.endpoint()}, logger, near, grpc.WithChainUnaryInterceptor(c.gate))
}

// gate is a grpc.UnaryClientInterceptor. Its words are those by which etcd's
// client tells that a request was not sent.
func (c *Child) gate(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := c.reachable(); err != nil {
		return status.Errorf(codes.Unavailable, "there is no connection available: %v", err)
	}
	return invoke(ctx, method, request, answer, conn, opts...)
}

func dial(endpoints []string, logger *slog.Logger, r reach, opts ...grpc.DialOption) (*clientv3.Client, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("dial etcd: no endpoints: name at least one host:port")
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		MaxCallSendMsgSize:   maxSendBytes,
		MaxCallRecvMsgSize:   math.MaxInt32,
		Logger:               newZap(logger, clientLevel),
		MaxUnaryRetries:      r.retries,
		DialOptions: append(opts, grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: r.reconnect},
			MinConnectTimeout: 5 * time.Second,
		})),
	})
	if err != nil {
		return nil, fmt.Errorf("dial etcd at %v: %w", endpoints, err)
	}
	return client, nil
}
