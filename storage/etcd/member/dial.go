package member

import (
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// reconnect is the longest pause before a client reconnects, and retries how often it
// tries a read. A member on this machine is back soon or, within a second, not at all;
// in a cluster another one serves.
const (
	reconnect = 200 * time.Millisecond
	retries   = 40
)

// Dial returns a client of the child's store. While the process is known to be down or
// silent, calls fail within about a second, and writes at once, with the reason; the
// client reconnects by itself. In a cluster the client calls this server's member, and
// another one while that does not serve. logger gets the client's messages at Debug;
// nil discards them. Call Dial after Start, and close the client.
func (c *Child) Dial(logger *slog.Logger) (*clientv3.Client, error) {
	gate := grpc.WithChainUnaryInterceptor(c.gate)
	if c.peers == nil {
		return c.dial(logger, gate)
	}
	o := c.opts.Cluster.dialOptions(logger, c.opts.Cluster.ClientURL)
	o.GRPC = []grpc.DialOption{
		gate, grpc.WithChainUnaryInterceptor(c.peers.calls.Unary), grpc.WithChainStreamInterceptor(c.peers.calls.Stream),
		// pick_first uses the first endpoint that can be reached, instead of all in turn.
		grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"pick_first": {}}]}`),
	}
	client, err := dial.New(o)
	if err != nil {
		return nil, err
	}
	c.peers.addClient(client)
	return client, nil
}

// dial makes a client of the child itself.
func (c *Child) dial(logger *slog.Logger, opts ...grpc.DialOption) (*clientv3.Client, error) {
	return dial.New(dial.Options{Endpoints: []string{c.endpoint()}, Logger: logger, Reconnect: reconnect, Retries: retries, GRPC: opts})
}
