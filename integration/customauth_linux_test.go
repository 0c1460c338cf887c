package integration

import (
	"context"
	"net/http"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// customProviders are authorizers at the client, which the sidecar of the workload asks.
const customProviders = `
extensionProviders:
- {name: grpc, envoyExtAuthzGrpc: {service: shop/ask.shop.test, port: 9000, timeout: 2s, statusOnError: "503"}}
- {name: http, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 2s, pathPrefix: /check, includeAdditionalHeadersInCheck: {x-who: mesh}}}
- {name: gone, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9002, timeout: 2s, statusOnError: "503"}}
- {name: open, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9002, timeout: 2s, failOpen: true}}
- {name: unseen, envoyExtAuthzGrpc: {service: none.shop.test, port: 9002}}
`

const customEntry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ask, namespace: shop}
spec:
  hosts: [ask.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9000, name: grpc, protocol: GRPC}, {number: 9001, name: http, protocol: HTTP}, {number: 9002, name: grpc-gone, protocol: GRPC}]
  endpoints: [{address: 10.0.0.2}]
`

// grpcAuthorizer is an authorizer that refuses everything.
type grpcAuthorizer struct {
	authv3.UnimplementedAuthorizationServer
}

// Check implements the authorization service.
func (grpcAuthorizer) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode_PaymentRequired},
			Headers: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-asked", Value: "grpc"}}},
		}},
	}, nil
}

// TestEnvoyCustomPolicies: the sidecar asks the provider of a CUSTOM policy, at the next request of
// a kept connection, and refuses what it cannot ask about.
func TestEnvoyCustomPolicies(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerMesh(t, serverOptions{meshConfig: customProviders})
		authorizer := grpc.NewServer()
		authv3.RegisterAuthorizationServer(authorizer, grpcAuthorizer{})
		l := m.client.listen("0.0.0.0:9000")
		go func() { _ = authorizer.Serve(l) }()
		t.Cleanup(authorizer.Stop)
		overHTTP := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/check/" && r.Header.Get("x-who") == "mesh" {
				w.WriteHeader(http.StatusOK)
				return
			}
			w.WriteHeader(http.StatusUnauthorized)
		})}
		lh := m.client.listen("0.0.0.0:9001")
		go func() { _ = overHTTP.Serve(lh) }()
		t.Cleanup(func() { _ = overHTTP.Close() })

		m.apply(customEntry)
		in := m.sidecarOfApp(v, identified(t, m.of, shopAccounts+"app"))
		in.awaitWarm()
		kept := m.kept()
		before := in.listenersModified()
		custom := func(name, provider string) string {
			return authorization(name, "{action: CUSTOM, provider: {name: "+provider+"}, rules: [{}]}")
		}
		for _, step := range []struct {
			name, documents, remove, want string
			tcp                           string // empty if the connection is closed
		}{
			{"without a policy", "", "", "http", "tcp " + secretWord},
			{"a provider over gRPC refuses", custom("a", "grpc"), "", "402", ""},
			{"a second policy of the provider", custom("b", "grpc"), "", "402", ""},
			{"two providers", custom("b", "http"), "", "403", ""},
			{"one provider again", "", custom("b", "http"), "402", ""},
			{"over HTTP, which knows no connections", custom("a", "http"), "", "http", "tcp " + secretWord},
			{"a provider that is away", custom("a", "gone"), "", "503", ""},
			{"a provider that is away, and may be", custom("a", "open"), "", "http", "tcp " + secretWord},
			{"a provider without a service", custom("a", "unseen"), "", "403", ""},
			{"an unknown provider", custom("a", "unknown"), "", "403", ""},
			{"without any", "", custom("a", "unknown"), "http", "tcp " + secretWord},
		} {
			if step.documents != "" {
				m.awaitSynced(m.apply(step.documents), "app")
			}
			if step.remove != "" {
				m.awaitSynced(m.remove(step.remove), "app")
			}
			if got, err := kept.status(8080); err != nil || got != step.want {
				t.Errorf("%s: %s, %v, want %s", step.name, got, err, step.want)
			}
			if err := greets(m.client, 0, "10.0.0.1:5432", "\x01hello\n", step.tcp); (err == nil) != (step.tcp != "") {
				t.Errorf("%s: TCP: %v", step.name, err)
			}
		}
		if again := in.listenersModified(); kept.opened != 1 || again != before {
			t.Errorf("%d connections, and %d listeners were changed", kept.opened, again-before)
		}
		m.expectNothingRejected()
		in.expectNothingRejected()
	})
}
