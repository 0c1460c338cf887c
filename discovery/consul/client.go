package consul

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/consul/api"
)

// maxConnections bounds the connections over TLS; each carries many queries. Without a bound,
// a transport whose connections are all full opens another one for each request.
const maxConnections = 50

// client talks to one agent of Consul.
type client struct {
	*api.Client
	close func()
}

// newClient makes a client with enough connections for the queries and a few more.
func newClient(o *Options) (*client, error) {
	address, err := url.Parse(o.Address)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConnsPerHost: o.MaxQueries, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	if address.Scheme == "https" {
		transport.MaxConnsPerHost = maxConnections
		transport.DialTLSContext = dialTLS(dialer, o.TLS)
	}
	c, err := api.NewClient(&api.Config{
		Address: address.Host, Scheme: address.Scheme, Transport: transport, HttpClient: &http.Client{Transport: transport},
	})
	if err != nil {
		return nil, err
	}
	return &client{c, transport.CloseIdleConnections}, nil
}

// dialTLS returns a dialer that reads the TLS configuration anew for each connection.
func dialTLS(dialer *net.Dialer, configure func() (*tls.Config, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if configure != nil {
			own, err := configure()
			if err != nil {
				return nil, err
			}
			config = own.Clone()
		}
		config.NextProtos = []string{"h2", "http/1.1"}
		d := &tls.Dialer{NetDialer: dialer, Config: config}
		return d.DialContext(ctx, network, address)
	}
}
