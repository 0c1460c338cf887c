package integration

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// endOf returns the error with which something in the background ends.
func endOf(t *testing.T, what string, end <-chan error) error {
	t.Helper()
	select {
	case err := <-end:
		return err
	case <-time.After(patience):
		t.Fatalf("%s goes on", what)
		return nil
	}
}

// TestWhatIsTakenBackEndsStreams: revoking an identity, and deleting a TokenIssuer or a user,
// end the streams and watches that depend on it, and no others.
func TestWhatIsTakenBackEndsStreams(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{args: []string{"--anonymous-loopback"}})
	issuer := jwkstest.New(t)
	s.must("", "user", "create", "root", "--role", "admin")
	token := strings.TrimSpace(s.must("", "user", "create", "anna", "--role", "viewer"))
	s.apply(tokenIssuer("ci", issuer, forPortolan, "users: {}", subjectIs("api", "shop")), fill(`
apiVersion: portolan.io/v1
kind: RoleBinding
metadata: {name: all, namespace: shop}
spec:
  role: viewer
  subjects: [{kind: User, name: "ci:peter"}, {kind: User, name: "$web"}]
`, "$web", webIdentity))
	web := s.as(t, webIdentity)

	proxy := func(config *tls.Config, name string) *xdstest.Client {
		c := xdstest.Dial(t, s.secureXDS, xdstest.ClientOptions{Credentials: credentials.NewTLS(config), Variant: protocol.Delta, Node: xdstest.NewNode("sidecar", "10.0.0.1", name, "shop", nil)})
		c.Subscribe(xdstest.ClusterType)
		c.AwaitAnswer(xdstest.ClusterType, 0)
		return c
	}
	revoked, other := proxy(web, "web"), proxy(s.as(t, "spiffe://cluster.local/ns/shop/sa/db"), "db")

	jwt := func(subject string) string {
		return issuer.Sign(t, map[string]any{"iss": issuer.URL, "aud": "portolan", "sub": subject, "exp": time.Now().Add(time.Hour).Unix()})
	}
	conn, err := grpc.NewClient(s.secureXDS, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: s.authority.Pool(), ServerName: "portolan.test"})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+jwt("api")))
	defer cancel()
	var stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	eventually(t, "the token is taken", func() error {
		if stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); err != nil {
			return err
		}
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: xdstest.NewNode("sidecar", "10.0.0.1", "api", "shop", nil), TypeUrl: resource.ClusterType}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	})
	issued := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				issued <- err
				return
			}
		}
	}()

	// watch opens a watch, and sends the error that ends it.
	watch := func(config *tls.Config, token string) <-chan error {
		transport := &http.Transport{TLSClientConfig: config}
		t.Cleanup(transport.CloseIdleConnections)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.api+"/apis/networking.istio.io/v1/namespaces/shop/serviceentries?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "portolan.test"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(answer.Body)
			t.Fatalf("the watch is answered %s %s", answer.Status, body)
		}
		end := make(chan error, 1)
		go func() {
			defer func() { _ = answer.Body.Close() }()
			_, err := io.Copy(io.Discard, answer.Body)
			end <- err
		}()
		return end
	}
	anonymous := &tls.Config{RootCAs: s.authority.Pool(), ServerName: "portolan.test"}
	ofAnna, ofPeter, ofWeb := watch(anonymous.Clone(), token), watch(anonymous.Clone(), jwt("peter")), watch(web.Clone(), "")

	s.apply(`
apiVersion: portolan.io/v1
kind: RevokedIdentity
metadata: {name: web, namespace: shop}
spec: {serviceAccount: web, reason: the machine was stolen}
`)
	if err := revoked.AwaitEnd(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "is revoked (revokedidentity/shop/web): the machine was stolen") {
		t.Errorf("the stream of the revoked identity ended with %v", err)
	}
	_ = endOf(t, "the watch of the revoked identity", ofWeb)
	s.must("", "delete", "user/anna", "-n", "istio-system")
	_ = endOf(t, "the watch of the deleted user", ofAnna)
	select {
	case err := <-ofPeter:
		t.Errorf("another watch ended with %v", err)
	case err := <-issued:
		t.Errorf("another stream ended with %v", err)
	default:
	}
	s.must("", "delete", "tokenissuer/ci", "-n", "istio-system")
	if err := endOf(t, "the stream by a token of the deleted issuer", issued); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "is not of an issuer that this mesh trusts") {
		t.Errorf("the stream by a token ended with %v", err)
	}
	_ = endOf(t, "the watch by a token of the deleted issuer", ofPeter)
	s.apply(plainEntry("later"))
	other.Await("a change", func(held func(string) map[string]xdstest.Held) bool {
		_, ok := held(xdstest.ClusterType)["outbound|80||later.shop.example"]
		return ok
	})
}
