package dial

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/portolan-mesh/portolan/storage/etcd/zaplog"
)

const (
	// timeout bounds one attempt to connect.
	timeout = 5 * time.Second
	// maxSendBytes is more than any etcd takes in one request, so that etcd refuses what
	// is too large, and not the transport of its client.
	maxSendBytes = 64 << 20
)

// Window is how many bytes a client or a member receives before the sender has to wait for it,
// for a call as for a connection. It is fixed: a window that follows the network costs a ping
// for each message, and each ping wakes both processes.
const Window = 4 << 20

// Options of a client. Only Endpoints are required.
type Options struct {
	// Endpoints are unix:///path, or host:port with or without http:// or
	// https:// before it; all with TLS or all without.
	Endpoints []string
	// TLS returns the configuration of each new connection; nil is plaintext. A
	// ServerName in it replaces the host of an endpoint.
	TLS func() (*tls.Config, error)
	// User is the etcd user of the client. Password returns its password whenever etcd
	// authenticates the client. Without them etcd may still know a client by its
	// certificate.
	User     string
	Password func() (string, error)
	// Reconnect is the longest pause between two attempts to connect; 0 is a
	// second.
	Reconnect time.Duration
	// Retries is how often a read is retried, every 25 ms, while etcd is away; 0 is 100
	// times.
	Retries uint
	// Logger gets the client's messages, at Debug; nil discards them.
	Logger *slog.Logger
	// GRPC are options of the client's connections.
	GRPC []grpc.DialOption
}

// New returns a client. It does not connect: the first call does. If the server goes
// away, the client reconnects within Reconnect of its return. It notices a dead
// connection after 13 seconds. The caller closes the client.
func New(o Options) (*clientv3.Client, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("dial etcd: no endpoints: name at least one host:port")
	}
	if (o.User == "") != (o.Password == nil) {
		return nil, errors.New("dial etcd: a user needs a password, and a password a user")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Reconnect == 0 {
		o.Reconnect = time.Second
	}
	config := clientv3.Config{
		Endpoints:            o.Endpoints,
		DialTimeout:          timeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		MaxCallSendMsgSize:   maxSendBytes,
		MaxCallRecvMsgSize:   math.MaxInt32,
		MaxUnaryRetries:      o.Retries,
		Logger:               zaplog.New(o.Logger, func(zapcore.Level, string) slog.Level { return slog.LevelDebug }),
		DialOptions:          o.dialOptions(),
	}
	if o.User == "" {
		return open(config)
	}
	login := &login{password: o.Password}
	config.Username, config.Password = o.User, "asked for by login"
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(login.intercept))
	client, err := open(config)
	login.opened.Store(true)
	return client, err
}

func open(config clientv3.Config) (*clientv3.Client, error) {
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("dial etcd at %v: %w", config.Endpoints, err)
	}
	return client, nil
}

func (o *Options) dialOptions() []grpc.DialOption {
	options := append([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: o.Reconnect},
		MinConnectTimeout: timeout,
	}), grpc.WithStaticStreamWindowSize(Window), grpc.WithStaticConnWindowSize(Window)}, o.GRPC...)
	if o.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(transport{o.TLS}))
	}
	return options
}
