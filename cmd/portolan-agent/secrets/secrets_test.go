package secrets_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put writes the files of a certificate.
func put(t *testing.T, dir, content string) {
	t.Helper()
	for _, name := range []string{"cert-chain.pem", "key.pem", "root-cert.pem"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func start(t *testing.T, dir string) (*secrets.Server, secretv3.SecretDiscoveryServiceClient) {
	t.Helper()
	s, err := secrets.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	s.Register(g)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); g.Stop(); <-done })
	return s, secretv3.NewSecretDiscoveryServiceClient(conn)
}

// content returns what a secret says.
func content(t *testing.T, packed *anypb.Any) string {
	t.Helper()
	var s tlsv3.Secret
	if err := packed.UnmarshalTo(&s); err != nil {
		t.Fatal(err)
	}
	if s.GetTlsCertificate() != nil {
		return s.GetName() + ":" + string(s.GetTlsCertificate().GetCertificateChain().GetInlineBytes()) + "," + string(s.GetTlsCertificate().GetPrivateKey().GetInlineBytes())
	}
	return s.GetName() + ":" + string(s.GetValidationContext().GetTrustedCa().GetInlineBytes())
}

// TestSecrets: both variants serve the certificate and the roots, and the next ones at once. A name
// of anything else gets nothing.
func TestSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "1-")
	s, client := start(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	world, err := client.StreamSecrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	delta, err := client.DeltaSecrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"ROOTCA", "default", "other"}
	if err := world.Send(&discoveryv3.DiscoveryRequest{ResourceNames: names}); err != nil {
		t.Fatal(err)
	}
	if err := delta.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: names}); err != nil {
		t.Fatal(err)
	}
	expect := func(of string, removed []string) {
		t.Helper()
		want := []string{"ROOTCA:" + of + "root-cert.pem", "default:" + of + "cert-chain.pem," + of + "key.pem"}
		r, err := world.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range r.GetResources() {
			got = append(got, content(t, one))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("state of the world, -want +got:\n%s", diff)
		}
		if err := world.Send(&discoveryv3.DiscoveryRequest{ResourceNames: names, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}); err != nil {
			t.Fatal(err)
		}
		d, err := delta.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, one := range d.GetResources() {
			got = append(got, content(t, one.GetResource()))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("delta, -want +got:\n%s", diff)
		}
		if diff := cmp.Diff(removed, d.GetRemovedResources()); diff != "" {
			t.Errorf("delta, removed, -want +got:\n%s", diff)
		}
	}
	expect("1-", []string{"other"})
	put(t, dir, "2-")
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("2-", []string{"other"})
	if err := os.Remove(filepath.Join(dir, "cert-chain.pem")); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil {
		t.Error("a certificate is read that is not there")
	}
	if _, err := secrets.New(dir); err == nil {
		t.Error("a server begins without a certificate")
	}
}

// TestUntil: a server knows when the certificate that it serves expires, whatever becomes of the
// files. Of a damaged one, and of one with another's key, it does not.
func TestUntil(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certify := func(until time.Time) (chain, key string) {
		t.Helper()
		pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until}
		signed, err := x509.CreateCertificate(rand.Reader, of, of, pair.Public(), pair)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(pair)
		if err != nil {
			t.Fatal(err)
		}
		in := func(kind string, of []byte) string {
			return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: of}))
		}
		return in("CERTIFICATE", signed), in("PRIVATE KEY", private)
	}
	first := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	second := first.AddDate(0, 0, 1)
	oneChain, oneKey := certify(first)
	twoChain, twoKey := certify(second)
	put(t, dir, "damaged ")
	s, err := secrets.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, chain, key string
		want             time.Time
	}{
		{"damaged", "damaged", "damaged", time.Time{}},
		{"a first one", oneChain, oneKey, first},
		{"the next one", twoChain, twoKey, second},
		{"with the key of another", twoChain, oneKey, time.Time{}},
		{"the next one again", twoChain, twoKey, second},
	} {
		err := errors.Join(os.WriteFile(filepath.Join(dir, "cert-chain.pem"), []byte(step.chain), 0o600), os.WriteFile(filepath.Join(dir, "key.pem"), []byte(step.key), 0o600), s.Reload())
		if got := s.Until(); err != nil || !got.Equal(step.want) {
			t.Errorf("%s: %s, %v, want %s", step.name, got, err, step.want)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got := s.Until(); !got.Equal(second) {
		t.Errorf("without its files it is %s", got)
	}
}
