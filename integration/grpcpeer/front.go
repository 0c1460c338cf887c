package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds" // the scheme xds
)

// callTimeout is how long a call may take.
const callTimeout = 10 * time.Second

// client turns each HTTP request into a call: the host is the target, the path the method, and
// the headers x-... are the metadata.
type client struct {
	through string // the address of a proxy; empty for none

	mu       sync.Mutex
	channels map[string]*grpc.ClientConn // by host
}

// front serves HTTP until ctx ends.
func front(ctx context.Context, address, through string) error {
	c := &client{through: through, channels: map[string]*grpc.ClientConn{}}
	server := &http.Server{Addr: address, Handler: c, ReadHeaderTimeout: callTimeout}
	closed := make(chan struct{})
	defer func() { <-closed }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(closed)
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (c *client) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	channel, err := c.channel(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	md := metadata.MD{}
	for name, values := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-") {
			md[name] = values
		}
	}
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(r.Context(), md), callTimeout)
	defer cancel()
	var in, out []byte
	if err := channel.Invoke(ctx, r.URL.Path, &in, &out); err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out)
}

// statusOf returns the HTTP status for a failed call.
func statusOf(err error) int {
	switch status.Code(err) {
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

func (c *client) channel(host string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels[host] != nil {
		return c.channels[host], nil
	}
	credentials, err := xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		return nil, err
	}
	to, options := "xds:///"+host, []grpc.DialOption{grpc.WithTransportCredentials(credentials), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}))}
	if c.through != "" {
		to, options = c.through, append(options, grpc.WithAuthority(host))
	}
	channel, err := grpc.NewClient(to, options...)
	if err == nil {
		c.channels[host] = channel
	}
	return channel, err
}
