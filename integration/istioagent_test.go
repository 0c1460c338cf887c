package integration

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
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
	istio "istio.io/api/security/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// istioAgent behaves as Istio's agent does towards its authority and its control plane. See
// istio/istio 1.16, security/pkg/nodeagent/caclient/providers/citadel/client.go, and
// pkg/security/retry.go for the retries.
type istioAgent struct {
	t testing.TB
	// address is that of the control plane, and san the name in its certificate (CA_SAN).
	address, san string
	// roots is a file with the authorities of the control plane's certificate.
	roots string
	// token is a file (JWT_PATH). As long as it exists, each call sends its content.
	token string
	// certificates is the directory of PROV_CERT and OUTPUT_CERTS.
	certificates string
	rsa          bool
	attempts     int
}

// GetRequestMetadata implements credentials.PerRPCCredentials with the token in the file, if it
// exists.
func (a *istioAgent) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(a.token)
	if err != nil {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (a *istioAgent) RequireTransportSecurity() bool { return false }

// dial connects with the current certificate, if there is one.
func (a *istioAgent) dial() *grpc.ClientConn {
	a.t.Helper()
	text, err := os.ReadFile(a.roots)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		a.t.Fatal("there are no roots")
	}
	config := &tls.Config{RootCAs: pool, ServerName: a.san, MinVersion: tls.VersionTLS12}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(a.certificates, "cert-chain.pem"), filepath.Join(a.certificates, "key.pem"))
		if err != nil || time.Now().After(pair.Leaf.NotAfter) {
			return &tls.Certificate{}, nil
		}
		return &pair, nil
	}
	conn, err := grpc.NewClient(a.address, grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithPerRPCCredentials(a), grpc.WithUnaryInterceptor(a.retry))
	if err != nil {
		a.t.Fatal(err)
	}
	return conn
}

// retry retries what Istio's interceptor retries.
func (a *istioAgent) retry(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	again := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unavailable}
	var err error
	for a.attempts = 1; a.attempts <= 5; a.attempts++ {
		if err = invoke(ctx, method, request, reply, conn, o...); err == nil || !slices.Contains(again, status.Code(err)) {
			return err
		}
	}
	return err
}

// sign requests a certificate for an identity, and writes it and the key in the form of
// OUTPUT_CERTS. It returns the leaf.
func (a *istioAgent) sign(identity string, life time.Duration) (*x509.Certificate, error) {
	a.t.Helper()
	var key crypto.Signer
	var err error
	if a.rsa {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(identity)}})
	if err != nil {
		a.t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:         pkix.Name{Organization: []string{""}},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true, Value: names}},
	}, key)
	if err != nil {
		a.t.Fatal(err)
	}
	conn := a.dial()
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(a.t.Context(), metadata.Pairs("ClusterID", "Kubernetes")), patience)
	defer cancel()
	answer, err := istio.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &istio.IstioCertificateRequest{
		Csr:              string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
		ValidityDuration: int64(life / time.Second),
		Metadata:         &structpb.Struct{Fields: map[string]*structpb.Value{"CertSigner": structpb.NewStringValue("")}},
	})
	if err != nil {
		return nil, err
	}
	chain := answer.GetCertChain()
	if len(chain) <= 1 {
		return nil, errors.New("invalid empty CertChain")
	}
	for name, content := range map[string]string{
		"key.pem":        string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		"cert-chain.pem": strings.Join(chain, ""),
		"root-cert.pem":  chain[len(chain)-1],
	} {
		if err := os.WriteFile(filepath.Join(a.certificates, name), []byte(content), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.certificates, "cert-chain.pem"), filepath.Join(a.certificates, "key.pem"))
	if err != nil {
		return nil, err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(chain[len(chain)-1])) {
		return nil, errors.New("the last of the chain is no root")
	}
	between.AppendCertsFromPEM([]byte(strings.Join(chain[1:], "")))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	return pair.Leaf, err
}

// discover requests clusters as a proxy behind the agent.
func (a *istioAgent) discover(namespace string) error {
	conn := a.dial()
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(a.t.Context(), metadata.Pairs("ClusterID", "Kubernetes")), patience)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := xdstest.NewNode("sidecar", "10.0.0.1", "web", namespace, nil)
	node.Metadata.Fields["SERVICE_ACCOUNT"] = structpb.NewStringValue("web")
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.ClusterType}); err != nil {
		_, err = stream.Recv()
		return err
	}
	_, err = stream.Recv()
	return err
}

// TestIstioAgent: Istio's agent gets its certificate with a join token. It renews it with that
// certificate, although it still sends the token, which is used up. Its proxy gets the
// configuration. This works with keys of both kinds.
func TestIstioAgent(t *testing.T) {
	t.Parallel()
	const san = "istiod.istio-system.svc"
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0", "--api-name", san}})
	agent := istioAgent{
		t: t, address: announcedSecure.FindStringSubmatch(s.process.output())[1], san: san,
		roots: write(t, "roots.pem", s.must("", "ca", "root")),
	}
	newToken := func() string {
		return write(t, "istio-token", s.must("", "token", "create", "-n", "shop", "--service-account", "web"))
	}
	for name, rsa := range map[string]bool{"RSA": true, "ECDSA": false} {
		t.Run(name, func(t *testing.T) {
			a := agent
			a.t, a.rsa, a.token, a.certificates = t, rsa, newToken(), t.TempDir()
			if err := a.discover("shop"); status.Code(err) != codes.Unauthenticated {
				t.Errorf("before it has a certificate: %v", err)
			}
			first, err := a.sign(webIdentity, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if life := time.Until(first.NotAfter); life < 50*time.Minute || life > time.Hour {
				t.Errorf("the certificate lasts for %s", life)
			}
			second, err := a.sign(webIdentity, 0)
			if err != nil {
				t.Fatalf("renewed, with a token that is used up: %v", err)
			}
			if second.Equal(first) || second.URIs[0].String() != webIdentity || time.Until(second.NotAfter) < 23*time.Hour {
				t.Errorf("renewed: %v until %s", second.URIs, second.NotAfter)
			}
			if err := a.discover("shop"); err != nil {
				t.Errorf("with the certificate: %v", err)
			}
			if err := a.discover("bank"); status.Code(err) != codes.PermissionDenied {
				t.Errorf("a proxy of another namespace: %v", err)
			}
			if _, err := a.sign("spiffe://cluster.local/ns/bank/sa/vault", 0); status.Code(err) != codes.Unauthenticated || a.attempts != 1 {
				t.Errorf("a certificate of another: %v after %d attempts", err, a.attempts)
			}
			a.token = filepath.Join(t.TempDir(), "none")
			if _, err := a.sign(webIdentity, 0); err != nil {
				t.Errorf("without any token: %v", err)
			}
			if _, err := a.sign("spiffe://cluster.local/ns/bank/sa/vault", 0); status.Code(err) != codes.PermissionDenied || a.attempts != 1 {
				t.Errorf("a certificate of another, without any token: %v after %d attempts", err, a.attempts)
			}
		})
	}
	a := agent
	a.certificates, a.token = t.TempDir(), newToken()
	if _, err := a.sign(webIdentity, 91*24*time.Hour); status.Code(err) != codes.InvalidArgument || a.attempts != 1 {
		t.Errorf("for too long: %v after %d attempts", err, a.attempts)
	}
	if _, err := a.sign(webIdentity, 0); err != nil {
		t.Errorf("a request that was at fault has used up the token: %v", err)
	}
	a.certificates, a.token = t.TempDir(), write(t, "istio-token", "not a token")
	if _, err := a.sign(webIdentity, 0); status.Code(err) != codes.Unauthenticated || a.attempts != 1 {
		t.Errorf("a token of nobody: %v after %d attempts", err, a.attempts)
	}
}
