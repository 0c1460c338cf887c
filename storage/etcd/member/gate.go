package member

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gate is a grpc.UnaryClientInterceptor: it refuses at once calls that cannot succeed,
// and counts the calls under way. It uses the error text by which etcd's client says
// that a request was not sent.
func (c *Child) gate(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := c.reachable(); err != nil {
		return status.Errorf(codes.Unavailable, "there is no connection available: %v", err)
	}
	c.calls.Add(1)
	defer c.calls.Add(-1)
	return invoke(ctx, method, request, answer, conn, opts...)
}
