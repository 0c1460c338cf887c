package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscredentials "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

// echo describes a call as the server received it.
type echo struct {
	Upstream string
	Path     string
	Host     string
	Header   http.Header
	// Peer is the identity that the client proved, empty for none.
	Peer string `json:",omitempty"`
	// Attempt is the number of calls with the same x-case so far, including this one.
	Attempt int
}

// server answers calls of any method. Metadata changes what it does: x-delay is how long the
// answer takes, and x-fail how many of the calls with the same x-case fail as unavailable.
type server struct {
	name string

	mu       sync.Mutex
	attempts map[string]int
}

// grpcServer has what servers with and without a control plane share.
type grpcServer interface {
	Serve(net.Listener) error
	GracefulStop()
}

// serve runs a server until ctx ends, and then until its open calls are answered.
func serve(ctx context.Context, address, name string, managed bool) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := &server{name: name, attempts: map[string]int{}}
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(s.handle), grpc.ForceServerCodecV2(raw{})}
	var g grpcServer = grpc.NewServer(options...)
	if managed {
		options = append(options, xds.ServingModeCallback(func(a net.Addr, m xds.ServingModeChangeArgs) {
			fmt.Fprintln(os.Stderr, "mode", a, m.Mode, m.Err)
		}))
		credentials, err := xdscredentials.NewServerCredentials(xdscredentials.ServerOptions{FallbackCreds: insecure.NewCredentials()})
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials))
		if g, err = xds.NewGRPCServer(options...); err != nil {
			return err
		}
	}
	stopped := make(chan struct{})
	defer func() { <-stopped }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(stopped)
		<-ctx.Done()
		g.GracefulStop()
	}()
	return g.Serve(l)
}

func (s *server) handle(_ any, stream grpc.ServerStream) error {
	var in []byte
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	answer, err := s.answer(stream.Context(), md)
	if err != nil {
		return err
	}
	answer.Path, _ = grpc.MethodFromServerStream(stream)
	answer.Peer = identityOf(stream.Context())
	out, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return stream.SendMsg(&out)
}

func (s *server) answer(ctx context.Context, md metadata.MD) (*echo, error) {
	header := http.Header{}
	for name, values := range md {
		header[http.CanonicalHeaderKey(name)] = values
	}
	attempt := s.count(header.Get("x-case"))
	if delay, err := time.ParseDuration(header.Get("x-delay")); err == nil {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if n, err := strconv.Atoi(header.Get("x-fail")); err == nil && attempt <= n {
		return nil, status.Errorf(codes.Unavailable, "attempt %d of a call that fails %d times", attempt, n)
	}
	out := &echo{Upstream: s.name, Header: header, Attempt: attempt}
	if authority := md.Get(":authority"); len(authority) > 0 {
		out.Host = authority[0]
	}
	return out, nil
}

func (s *server) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[name]++
	return s.attempts[name]
}

// identityOf returns the identity in the certificate of a caller; empty for none.
func identityOf(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.PeerCertificates) > 0 && len(tls.State.PeerCertificates[0].URIs) > 0 {
		return tls.State.PeerCertificates[0].URIs[0].String()
	}
	return ""
}
