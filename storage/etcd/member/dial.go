package member

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Dial returns a client of the member behind one unix:///path endpoint, as
// Child.Start returns it, or of an etcd cluster at host:port endpoints. It
// does not connect: the first call does, and if the server goes away the
// client connects again by itself, within a second of its return. A dead
// connection is noticed after 13 seconds. The logger takes what the client
// says, at Debug; nil discards it. The caller closes the client.
func Dial(endpoints []string, logger *slog.Logger) (*clientv3.Client, error) {
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
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("dial etcd at %v: %w", endpoints, err)
	}
	return client, nil
}
