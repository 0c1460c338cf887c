package integration

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// processor is a program behind ext_proc: it adds a header to requests.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer
}

// Process implements the service of external processors.
func (processor) Process(stream grpc.BidiStreamingServer[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse]) error {
	for {
		switch _, err := stream.Recv(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
				{Header: &corev3.HeaderValue{Key: "x-processed", RawValue: []byte("yes")}},
			}}},
		}}}); err != nil {
			return err
		}
	}
}

// quota is a rate limit service that lets one request of each client of the domain shop through.
type quota struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	mu   sync.Mutex
	seen map[string]int // requests, by client
}

// ShouldRateLimit implements the rate limit service.
func (q *quota) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	for _, d := range r.GetDescriptors() {
		for _, e := range d.GetEntries() {
			client := e.GetKey() + "=" + e.GetValue()
			if q.seen[client]++; r.GetDomain() == "shop" && q.seen[client] > 1 {
				out.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
			}
		}
	}
	return out, nil
}

// serveGRPC serves what register registers until the test ends, and returns the port.
func serveGRPC(t testing.TB, register func(grpc.ServiceRegistrar)) int {
	t.Helper()
	var l net.Listener = listen(t)
	server := grpc.NewServer()
	register(server)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		running.Wait()
	})
	return portAt(l)
}

// startPatched starts a server, with more arguments, and the gateway edge, which passes requests for
// reviews.shop.example on to an upstream. It returns the request.
func startPatched(t testing.TB, v protocol.Variant, args ...string) (*server, *envoy, request) {
	t.Helper()
	app, port := startUpstream(t, "app"), freePort(t)
	s := startServer(t, serverOptions{args: args})
	s.apply(fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews.shop.example], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 127.0.0.1, ports: {http: %d}}]}
`, app.port), fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: edge}, servers: [{port: {number: %d, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*.shop.example"]}]}
`, port), `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews.shop.example], gateways: [edge], http: [{route: [{destination: {host: reviews.shop.example}}]}]}
`)
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
	q := request{port: port, host: "reviews.shop.example"}
	awaitReply(t, q, "app")
	return s, edge, q
}

// TestExtendTheProxyPage applies the objects of docs/tasks/extend-the-proxy.md, and sees in
// requests what each filter does.
func TestExtendTheProxyPage(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		port := serveGRPC(t, func(r grpc.ServiceRegistrar) { extprocv3.RegisterExternalProcessorServer(r, processor{}) })
		here := strings.NewReplacer("10.0.0.40", "127.0.0.1", "number: 9090,", fmt.Sprintf("number: %d,", port), "outbound|9090|", fmt.Sprintf("outbound|%d|", port))
		objects := pageObjects(t, "extend-the-proxy.md", 7, here)
		s, edge, q := startPatched(t, v)
		with := func(path string, header map[string]string) request {
			out := q
			out.path, out.header = path, header
			return out
		}
		s.must(strings.Join(objects, "---\n"), "apply", "-f", "-", "--wait")
		edge.expectNothingRejected()

		zipped := send(t, with("/", map[string]string{"Accept-Encoding": "gzip"}))
		if text, err := gzip.NewReader(strings.NewReader(zipped.body)); err != nil || zipped.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("compress: %v %v", zipped.header, err)
		} else if plain, err := io.ReadAll(text); err != nil || !strings.Contains(string(plain), `"app"`) {
			t.Errorf("compress: %q, %v", plain, err)
		}
		for tenant, want := range map[string]string{"blue": "blue", "": "none"} {
			header := map[string]string{}
			if tenant != "" {
				header["x-tenant"] = tenant
			}
			got := send(t, with("/", header)).echo.Header
			if got.Get("x-known-tenant") != want || got.Get("x-tenant") != "" {
				t.Errorf("header to metadata: %q of %q", got, tenant)
			}
		}
		if got := send(t, with("/", map[string]string{"x-answer": "lua"})); got.status != 418 || got.header.Get("x-by") != "lua" || got.body != "short and stout\n" {
			t.Errorf("lua answers %s %v", got, got.header)
		}
		if got := send(t, q); got.header.Get("x-passed") != "lua" || got.echo.Header.Get("x-processed") != "yes" {
			t.Errorf("lua and ext_proc: %v, %v", got.header, got.echo.Header)
		}
		if got := send(t, with("/healthz", nil)); got.status != 200 || got.echo.Upstream != "" {
			t.Errorf("health check: %s", got)
		}
		for origin, want := range map[string]int{"http://evil.example": 403, "http://partner.example": 200, "http://reviews.shop.example": 200} {
			forged := with("/", map[string]string{"Origin": origin})
			forged.method = "POST"
			if got := send(t, forged); got.status != want {
				t.Errorf("csrf: %s from %s, want %d", got, origin, want)
			}
		}
	})
}

// TestLimitRatesPage applies the global limit of docs/tasks/limit-rates.md; TestTaskPages runs the
// rest of the page.
func TestLimitRatesPage(t *testing.T) {
	t.Parallel()
	q := &quota{seen: map[string]int{}}
	port := serveGRPC(t, func(r grpc.ServiceRegistrar) { ratelimitv3.RegisterRateLimitServiceServer(r, q) })
	here := strings.NewReplacer("10.0.0.30", "127.0.0.1", "number: 8081,", fmt.Sprintf("number: %d,", port), "outbound|8081|", fmt.Sprintf("outbound|%d|", port))
	s, edge, plain := startPatched(t, protocol.Delta)
	s.must(strings.Join(pageObjects(t, "limit-rates.md", 2, here), "---\n"), "apply", "-f", "-", "--wait")
	edge.expectNothingRejected()
	ann, bob := plain, plain
	ann.header, bob.header = map[string]string{"x-client": "ann"}, map[string]string{"x-client": "bob"}
	for i, want := range []struct {
		request
		status int
	}{{ann, 200}, {ann, 429}, {bob, 200}, {plain, 200}, {plain, 200}, {ann, 429}} {
		if got := send(t, want.request); got.status != want.status {
			t.Errorf("request %d: %s, want %d", i, got, want.status)
		}
	}
}
