package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// question is what an authorizer was asked.
type question struct {
	path, body string
	header     http.Header
	bytes      bool // the body came as bytes
}

// authorizer answers over gRPC and over HTTP, by what the path of a request has: /deny, /slow, which
// waits until nobody wants the answer, and /broken, which fails. It allows everything else.
type authorizer struct {
	authv3.UnimplementedAuthorizationServer
	deniesRPC bool // over gRPC it denies everything, connections of TCP too

	mu    sync.Mutex
	last  question
	times int
}

func (a *authorizer) note(q question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = q
	a.times++
}

// asked returns what it was asked last, and how often it was asked.
func (a *authorizer) asked() (question, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.times
}

// Check implements the authorization service.
func (a *authorizer) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	asks := r.GetAttributes().GetRequest().GetHttp()
	q := question{path: asks.GetPath(), body: asks.GetBody(), header: http.Header{}}
	if raw := asks.GetRawBody(); len(raw) > 0 {
		q.body, q.bytes = string(raw), true
	}
	for name, value := range asks.GetHeaders() {
		q.header.Set(name, value)
	}
	a.note(q)
	header := func(name, value string) []*corev3.HeaderValueOption {
		return []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: name, Value: value}}}
	}
	switch {
	case strings.Contains(q.path, "/slow"):
		<-ctx.Done()
		return nil, ctx.Err()
	case strings.Contains(q.path, "/broken"):
		return nil, status.Error(codes.Internal, "it is broken")
	case a.deniesRPC || strings.Contains(q.path, "/deny"):
		return &authv3.CheckResponse{
			Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
			HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode_PaymentRequired}, Headers: header("x-deny-why", "unpaid"), Body: "pay first",
			}},
		}, nil
	}
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			Headers: header("x-up", "ann"), HeadersToRemove: []string{"x-remove"}, ResponseHeadersToAdd: header("x-allow", "yes"),
		}},
	}, nil
}

// ServeHTTP implements http.Handler.
func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.note(question{path: r.URL.RequestURI(), body: string(body), header: r.Header})
	w.Header().Set("x-hidden", "secret")
	switch {
	case strings.Contains(r.URL.Path, "/slow"):
		<-r.Context().Done()
	case strings.Contains(r.URL.Path, "/broken"):
		w.WriteHeader(http.StatusInternalServerError)
	case strings.Contains(r.URL.Path, "/deny"):
		w.Header().Set("x-deny-why", "unknown")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "who are you")
	default:
		w.Header().Set("x-up", "ann")
		w.Header().Set("x-allow", "yes")
	}
}

// serve answers on two listeners until the test ends or stop is called.
func (a *authorizer) serve(t testing.TB, overGRPC, overHTTP net.Listener) (stop func()) {
	t.Helper()
	rpc, web := grpc.NewServer(), &http.Server{Handler: a}
	authv3.RegisterAuthorizationServer(rpc, a)
	var running sync.WaitGroup
	running.Go(func() { _ = rpc.Serve(overGRPC) })
	running.Go(func() { _ = web.Serve(overHTTP) })
	stop = func() {
		rpc.Stop()
		_ = web.Close()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}
