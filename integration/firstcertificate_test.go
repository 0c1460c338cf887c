package integration

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache/rest/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// enrol gets a certificate of the mesh for a machine: by a credential, or by the certificate
// that the machine has.
func enrol(ctx context.Context, api string, roots *x509.CertPool, credential string, own *tls.Certificate) (key *ecdsa.PrivateKey, got certificate.Certificate, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, got, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, got, err
	}
	body, err := json.Marshal(certificate.Request{CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))})
	if err != nil {
		return nil, got, err
	}
	config := &tls.Config{RootCAs: roots}
	if own != nil {
		config.Certificates = []tls.Certificate{*own}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, api+certificate.Path, bytes.NewReader(body))
	if err != nil {
		return nil, got, err
	}
	r.Header.Set("Content-Type", "application/json")
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return nil, got, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, got, err
	}
	if response.StatusCode/100 != 2 {
		return nil, got, fmt.Errorf("%s: %s", response.Status, text)
	}
	return key, got, json.Unmarshal(text, &got)
}

// TestAMachineJoins: a server without any certificate of an operator makes its own authority;
// a machine gets a certificate by a join token, renews it, and its Envoy connects with it,
// until the identity is revoked. A restart keeps the root.
func TestAMachineJoins(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0"}})
	secureXDS := announcedSecure.FindStringSubmatch(s.process.output())[1]
	bundle := s.must("", "ca", "root")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(bundle)) {
		t.Fatalf("the roots are %q", bundle)
	}
	api := "https://" + s.api
	token := strings.TrimSpace(s.must("", "token", "create", "-n", "shop", "--service-account", "web"))

	key, got, err := enrol(t.Context(), api, roots, token, nil)
	if err != nil || got.Identity != webIdentity || got.Roots != bundle {
		t.Fatalf("the first certificate: %+v, %v", got, err)
	}
	if _, _, err := enrol(t.Context(), api, roots, token, nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("the token is used again: %v", err)
	}
	if _, _, err := enrol(t.Context(), api, roots, "", nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("nothing is shown: %v", err)
	}
	pair := tls.Certificate{PrivateKey: key}
	for rest := []byte(got.Chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		pair.Certificate = append(pair.Certificate, block.Bytes)
	}
	key, renewed, err := enrol(t.Context(), api, roots, "", &pair)
	if err != nil || renewed.Identity != webIdentity || renewed.Serial == got.Serial {
		t.Fatalf("the renewed certificate: %+v, %v", renewed, err)
	}

	dir := t.TempDir()
	files := securetest.Files{Dir: dir, Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{files.Cert: renewed.Chain, files.CA: bundle, files.Key: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.apply(plainEntry("first"))
	web := s.startEnvoy(envoyOptions{kind: "sidecar", name: "web", xds: secureXDS, variant: protocol.Delta, tls: &files})
	web.awaitCluster("outbound|80||first.shop.example", true)
	web.expectNothingRejected()

	s.apply(`
apiVersion: portolan.io/v1
kind: RevokedIdentity
metadata: {name: web, namespace: shop}
spec: {serviceAccount: web, reason: the machine was stolen}
`)
	if _, _, err := enrol(t.Context(), api, roots, "", &pair); err == nil || !strings.Contains(err.Error(), "is revoked") {
		t.Errorf("a revoked identity is renewed: %v", err)
	}
	s.launchEnvoy(envoyOptions{kind: "sidecar", name: "thief", xds: secureXDS, variant: protocol.Delta, tls: &files})
	eventually(t, "a revoked identity is refused", func() error {
		if !strings.Contains(s.process.output(), "is revoked") {
			return errors.New("it is not")
		}
		return nil
	})

	s.kill()
	s.start()
	if again := s.must("", "ca", "root"); again != bundle {
		t.Errorf("after a restart the roots are %q, and were %q", again, bundle)
	}
}
