package integration

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestWhoAnIssuerVouchesFor: the holder of a JWT is a user of the config API, with the rights
// that are bound to the user. A workload may subscribe to the objects of the mesh once it has
// the right to read them.
func TestWhoAnIssuerVouchesFor(t *testing.T) {
	t.Parallel()
	s := startSecureServer(t, serverOptions{})
	issuer := jwkstest.New(t)
	s.apply(tokenIssuer("ci", issuer, forPortolan, "users: {groups: groups}", subjectIs("peer", "istio-system")), `
apiVersion: portolan.io/v1
kind: RoleBinding
metadata: {name: releasers, namespace: shop}
spec:
  role: editor
  subjects: [{kind: Group, name: "ci:releasers"}]
`)
	// An issuer has a condition as long as its keys cannot be fetched.
	dead := jwkstest.New(t)
	dead.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	deadIssuer := tokenIssuer("dead", dead, forPortolan, "users: {}", "jwksUri: "+dead.URL+"/keys")
	s.apply(deadIssuer)
	condition := func(want bool) func() error {
		return func() error {
			out := s.must("", "get", "tokenissuer", "dead", "-n", "istio-system", "-o", "yaml")
			if told := strings.Contains(out, "PTL0424") && strings.Contains(out, "cannot fetch its keys"); told != want {
				return fmt.Errorf("told: %t\n%s", told, out)
			}
			return nil
		}
	}
	eventually(t, "a condition says that the keys cannot be fetched", condition(true))
	if out := s.must("", "get", "tokenissuer", "ci", "-n", "istio-system", "-o", "yaml"); strings.Contains(out, "PTL0424") {
		t.Errorf("the issuer whose keys are there: %s", out)
	}
	s.apply(strings.ReplaceAll(strings.ReplaceAll(deadIssuer, strconv.Quote(dead.CA), strconv.Quote(issuer.CA)), dead.URL+"/keys", issuer.URL+"/keys"))
	eventually(t, "the condition is gone with its cause", condition(false))
	claims := func(subject string) map[string]any {
		return map[string]any{"iss": issuer.URL, "aud": "portolan", "sub": subject, "groups": []string{"releasers"}, "exp": time.Now().Add(time.Hour).Unix()}
	}
	anna := issuer.Sign(t, claims("anna"))
	eventually(t, "the user is known", func() error {
		if o := s.try("", "auth", "whoami", "--token", anna); o.code != 0 || !strings.Contains(o.stdout, "ci:anna") || !strings.Contains(o.stdout, "ci:releasers") {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	if o := s.try(plainEntry("mine"), "apply", "-f", "-", "--token", anna); o.code != 0 {
		t.Errorf("in the namespace of the binding: %+v", o)
	}
	if o := s.try(strings.ReplaceAll(plainEntry("theirs"), "namespace: shop", "namespace: bank"), "apply", "-f", "-", "--token", anna); o.code != 77 {
		t.Errorf("in another namespace: %+v", o)
	}
	if o := s.try("", "get", "serviceentries", "-n", "shop", "--token", jwkstest.New(t).Sign(t, claims("anna"))); o.code != 77 {
		t.Errorf("a forged token: %+v", o)
	}

	conn, err := grpc.NewClient(s.secureXDS, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: s.authority.Pool(), ServerName: "portolan.test"})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	take := func() error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+issuer.Sign(t, claims("peer")))
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		if err != nil {
			return err
		}
		node := xdstest.NewNode("sidecar", "10.0.0.1", "peer", "istio-system", nil)
		node.Metadata.Fields["GENERATOR"] = structpb.NewStringValue("api")
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: "networking.istio.io/v1/ServiceEntry"}); err != nil {
			return err
		}
		_, err = stream.Recv()
		_ = stream.CloseSend()
		return err
	}
	if err := take(); status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "bind a role such as viewer to it in the namespace istio-system") {
		t.Errorf("without the right: %v", err)
	}
	s.apply(`
apiVersion: portolan.io/v1
kind: RoleBinding
metadata: {name: peers, namespace: istio-system}
spec:
  role: viewer
  subjects: [{kind: User, name: "spiffe://cluster.local/ns/istio-system/sa/peer"}]
`)
	eventually(t, "with the right", take)
}
