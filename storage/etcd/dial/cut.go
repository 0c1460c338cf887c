package dial

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errCut is the error of a call that was cut. etcd's client restarts reads and watches
// that end with it; the outcome of a write is unknown.
var errCut = status.Error(codes.Unavailable, "etcd does not serve any more where it was called")

// Calls tracks a client's calls in progress. The watcher of a member cuts them when the
// member stops serving: a member that hangs would let them wait until their deadline. The
// zero Calls has none.
type Calls struct {
	mu   sync.Mutex // guards what follows
	next int
	cuts map[int]context.CancelCauseFunc
}

// Cut ends all calls under way.
func (c *Calls) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cut := range c.cuts {
		cut(errCut)
	}
}

// begin returns the context of a call, and tracks the call until that context ends.
func (c *Calls) begin(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cuts == nil {
		c.cuts = map[int]context.CancelCauseFunc{}
	}
	id := c.next
	c.next++
	c.cuts[id] = cancel
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.cuts, id)
	})
	return ctx, cancel
}

// Unary is a grpc.UnaryClientInterceptor that tracks calls.
func (c *Calls) Unary(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, end := c.begin(ctx)
	defer end(nil)
	return explainCut(ctx, invoke(ctx, method, request, answer, conn, opts...))
}

// Stream is a grpc.StreamClientInterceptor that tracks streams.
func (c *Calls) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, end := c.begin(ctx)
	s, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		defer end(nil)
		return nil, explainCut(ctx, err)
	}
	return &cutStream{ClientStream: s, ctx: ctx, end: end}, nil
}

// explainCut returns errCut for the error of a call that was cut.
func explainCut(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errCut { //nolint:errorlint // it is that very value
		return errCut
	}
	return err
}

// A cutStream is a stream that can be cut.
type cutStream struct {
	grpc.ClientStream
	ctx context.Context
	end context.CancelCauseFunc
}

// RecvMsg implements grpc.ClientStream. It stops tracking the stream at the first error.
func (s *cutStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		return nil
	}
	defer s.end(nil)
	return explainCut(s.ctx, err)
}
