package integration

import (
	"crypto/tls"
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
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestXDSByTheTokenOfAnIssuer: on the TLS port, a client without a certificate has the identity
// that a TokenIssuer derives from its JWT, and no other.
func TestXDSByTheTokenOfAnIssuer(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{})
	issuer := jwkstest.New(t)
	s.apply(tokenIssuer("ci", issuer, forPortolan, subjectIs("web", "shop")))
	conn, err := grpc.NewClient(s.secureXDS, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: s.authority.Pool(), ServerName: "portolan.test", MinVersion: tls.VersionTLS12})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// ask requests clusters, and returns the error that ends the stream, or OK.
	ask := func(namespace, token string) error {
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		if err != nil {
			return err
		}
		node := xdstest.NewNode("sidecar", "10.0.0.1", "web", namespace, nil)
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: resource.ClusterType}); err != nil {
			_, err = stream.Recv()
			return err
		}
		_, err = stream.Recv()
		_ = stream.CloseSend()
		return err
	}
	claims := func(subject, audience string) map[string]any {
		return map[string]any{"iss": issuer.URL, "aud": audience, "sub": subject, "exp": time.Now().Add(time.Hour).Unix()}
	}
	good := issuer.Sign(t, claims("web", "portolan"))
	eventually(t, "the server has read the issuer", func() error { return ask("shop", good) })
	for name, c := range map[string]struct {
		namespace, token string
		code             codes.Code
		text             string
	}{
		"another namespace": {"bank", good, codes.PermissionDenied, ""},
		"no token":          {"shop", "", codes.Unauthenticated, ""},
		"another audience":  {"shop", issuer.Sign(t, claims("web", "other")), codes.Unauthenticated, "is for another audience, and must be for portolan"},
		"no rule":           {"shop", issuer.Sign(t, claims("api", "portolan")), codes.Unauthenticated, "no rule of tokenissuer/ci"},
		"forged":            {"shop", jwkstest.New(t).Sign(t, claims("web", "portolan")), codes.Unauthenticated, "is not of an issuer that this mesh trusts, or its signature"},
		"a join token":      {"shop", strings.TrimSpace(s.must("", "token", "create", "-n", "shop", "--service-account", "web")), codes.Unauthenticated, "no credential of a known sort"},
	} {
		if err := ask(c.namespace, c.token); status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
