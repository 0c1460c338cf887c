package member

import (
	"context"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// Dial returns a client of the child's store. While the process is known to be
// down, or not to answer, calls fail within about a second, and writes at once,
// with the reason; it connects again by itself. The logger takes what the client
// says, at Debug; nil discards it. Call it after Start, and close the client.
func (c *Child) Dial(logger *slog.Logger) (*clientv3.Client, error) {
	return c.dial(logger, grpc.WithChainUnaryInterceptor(c.gate))
}

// dial makes a client that knows its server to be on this machine: back soon or,
// in a second, not at all.
func (c *Child) dial(logger *slog.Logger, opts ...grpc.DialOption) (*clientv3.Client, error) {
	return dial.New(dial.Options{
		Endpoints: []string{c.endpoint()}, Logger: logger,
		Reconnect: 200 * time.Millisecond, Retries: 40, GRPC: opts,
	})
}

// gate is a grpc.UnaryClientInterceptor. Its words are those by which etcd's
// client tells that a request was not sent.
func (c *Child) gate(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := c.reachable(); err != nil {
		return status.Errorf(codes.Unavailable, "there is no connection available: %v", err)
	}
	return invoke(ctx, method, request, answer, conn, opts...)
}
