package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// certificateFiles are files with a certificate, its key, and the authorities to trust.
type certificateFiles struct{ chain, key, roots string }

// newCertificateFiles writes a certificate into files of one directory.
func newCertificateFiles(t testing.TB, pair secrettest.Pair, trusted *authority) *certificateFiles {
	t.Helper()
	dir := t.TempDir()
	f := &certificateFiles{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	f.replace(t, pair)
	if err := os.WriteFile(f.roots, trusted.pair.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// replace renames a new key and its certificate into place, one after the other.
func (f *certificateFiles) replace(t testing.TB, pair secrettest.Pair) {
	t.Helper()
	for _, file := range []struct {
		path    string
		content []byte
	}{{f.key, pair.Key}, {f.chain, pair.Cert}} {
		err := os.WriteFile(file.path+".new", file.content, 0o600)
		if err == nil {
			err = os.Rename(file.path+".new", file.path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEnvoyGatewayCertificateFiles: new connections get the certificate of files that were
// renamed into place. Open connections continue, and the server sends nothing for it.
func TestEnvoyGatewayCertificateFiles(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port, of := startServer(t, serverOptions{}), freePort(t), newAuthority(t, "authority")
		pair := of.issue(time.Hour, "files.shop.test")
		files := newCertificateFiles(t, pair, of)
		s.apply(
			tlsGateway("files", httpsServer(port, "files", fmt.Sprintf("mode: SIMPLE, serverCertificate: %s, privateKey: %s", files.chain, files.key))),
			tlsAnswer("files", "files"))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		client := newTLSClient(port, "files.shop.test", of.pair)
		client.awaitCertificate(t, pair)
		kept := client.load(t, "kept connections", true)
		kept.await(20)
		before := s.sentResources()
		for range 3 {
			pair = of.issue(time.Hour, "files.shop.test")
			files.replace(t, pair)
			client.awaitCertificate(t, pair)
			kept.await(20)
		}
		kept.expectUnharmed()
		expectEqual(t, "connections of kept ones", kept.dialed.Load(), int64(loadWorkers))
		expectEqual(t, "what the server sent", len(nonzero(less(s.sentResources(), before))), 0)
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// TestEnvoyCertificateFilesComeLater: a server whose files are missing is closed, and the proxy
// rejects the secret. When the files are moved into their directory, the proxy notices and
// opens the server. If the directory was missing too, a new path in the configuration does it.
func TestEnvoyCertificateFilesComeLater(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port, of := startServer(t, serverOptions{}), freePort(t), newAuthority(t, "authority")
		pair, dir := of.issue(time.Hour, "*.shop.test"), t.TempDir()
		s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		in := func(name, dir string) string {
			return httpsServer(port, name, fmt.Sprintf("mode: SIMPLE, serverCertificate: %[1]s/cert.pem, privateKey: %[1]s/key.pem", dir))
		}
		s.apply(tlsGateway("files", in("near", dir), in("far", dir+"/new")), tlsAnswer("files", "near"), tlsAnswer("files", "far"))
		eventually(t, "the proxy refuses the secrets", func() error {
			if out := s.try("", "proxy", "status").stdout; !strings.Contains(out, "REJECTED") {
				return errors.New(out)
			}
			return nil
		})
		near, far := newTLSClient(port, "near.shop.test", of.pair), newTLSClient(port, "far.shop.test", of.pair)
		for _, client := range []tlsClient{near, far} {
			if c, err := client.dial(t.Context()); err == nil {
				_ = c.Close()
				t.Errorf("%s is open without its files", client.host)
			}
		}
		files := &certificateFiles{chain: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
		files.replace(t, pair)
		near.awaitCertificate(t, pair)

		if err := os.Mkdir(filepath.Join(dir, "new"), 0o700); err != nil {
			t.Fatal(err)
		}
		files = &certificateFiles{chain: filepath.Join(dir, "new", "cert.pem"), key: filepath.Join(dir, "new", "key.pem")}
		files.replace(t, pair)
		s.apply(tlsGateway("files", in("near", dir), in("far", dir+"/./new")))
		far.awaitCertificate(t, pair)
	})
}

// innerEntry is a service behind a Gateway. Clients reach it with their own certificates.
func innerEntry(service, port int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: inner, namespace: shop}
spec:
  hosts: [inner.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $service, name: http, protocol: HTTP, targetPort: $port}]
  endpoints: [{address: 127.0.0.1}]
`, "$service", service, "$port", port)
}

// throughGateway routes some hosts of a Gateway to the shop.
func throughGateway(gateway, hosts string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: through, namespace: shop}
spec:
  hosts: [$hosts]
  gateways: [$gateway]
  http: [{route: [{destination: {host: $host}}]}]
`, "$hosts", hosts, "$gateway", gateway, "$host", shopHost)
}

// TestEnvoyOwnCertificates: with ISTIO_MUTUAL, proxies authenticate each other by the
// certificates of their bootstraps. A proxy without one opens no connection, and one of another
// authority is refused. New connections use a renewed file.
func TestEnvoyOwnCertificates(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x, port, inner := startServer(t, serverOptions{}), newShop(t), freePort(t), freePort(t)
		of, stranger := newAuthority(t, "authority"), newAuthority(t, "stranger")
		const identity = "spiffe://cluster.local/ns/shop/sa/shop"
		s.apply(
			x.entry(x.v1), innerEntry(inner, port), tlsRule("inner", "{mode: ISTIO_MUTUAL, sni: inner.shop.test}", ""),
			tlsGateway("inner", httpsServer(port, "inner", "mode: ISTIO_MUTUAL")), throughGateway("inner", "inner.shop.test"))
		edge := s.startEnvoy(envoyOptions{
			kind: "router", name: "edge", labels: "app=edge", variant: v, certificate: newCertificateFiles(t, of.issue(time.Hour, "edge", identity), of),
		})
		q := request{port: inner, host: "inner.shop.test"}
		// The sidecars run one after the other, since they have the same listeners.
		sidecar := func(name string, files *certificateFiles) *envoy {
			return s.startEnvoy(envoyOptions{kind: "sidecar", name: name, ip: "10.0.0.2", variant: v, certificate: files})
		}
		stop := func(e *envoy) {
			e.expectNothingRejected()
			e.process.kill()
		}

		bare := sidecar("bare", nil)
		awaitReply(t, q, "503")
		if got := send(t, q); got.body != "no healthy upstream" {
			t.Errorf("without a certificate the client gets %d %s", got.status, got.body)
		}
		stop(bare)

		wrong := sidecar("wrong", newCertificateFiles(t, stranger.issue(time.Hour, "wrong", identity), of))
		eventually(t, "the gateway refuses a certificate of another authority", func() error {
			got, err := do(t.Context(), clientOf(t), q)
			if err != nil {
				return err
			}
			stats, err := edge.stats(`listener\..*ssl\.fail_verify_error$`)
			if err == nil && (got.status != http.StatusServiceUnavailable || len(nonzero(stats)) == 0) {
				err = fmt.Errorf("the client gets %s; %v", got, stats)
			}
			return err
		})
		stop(wrong)

		files := newCertificateFiles(t, of.issue(time.Hour, "first", identity), of)
		client := sidecar("client", files)
		awaitShown := func(name string) {
			t.Helper()
			eventually(t, "the service sees the certificate "+name, func() error {
				got, err := do(t.Context(), clientOf(t), q)
				if err != nil {
					return err
				}
				if seen := got.echo.Header.Get("X-Forwarded-Client-Cert"); got.String() != "v1" || !strings.Contains(seen, `Subject="CN=`+name+`"`) {
					return fmt.Errorf("it answers %s: %s, and saw %q", got, got.body, seen)
				}
				return nil
			})
		}
		awaitShown("first")
		files.replace(t, of.issue(time.Hour, "second", identity))
		awaitShown("second")
		stop(client)
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// TestEnvoyGatewayTellsClientCertificates: a service behind a Gateway that verifies clients
// learns a client's certificate, but never what the client itself claims.
func TestEnvoyGatewayTellsClientCertificates(t *testing.T) {
	const claim = "Hash=00;Subject=\"CN=mallory\""
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x, port, of := startServer(t, serverOptions{}), newShop(t), freePort(t), newAuthority(t, "authority")
		mine := of.issue(time.Hour, "client.shop.test")
		s.apply(
			x.entry(x.v1), keyPair("door", of.issue(time.Hour, "*.shop.test"), map[string][]byte{secret.TLSAuthority: of.pair.Cert}),
			tlsGateway("door", httpsServer(port, "mutual", "mode: MUTUAL, credentialName: door"), httpsServer(port, "optional", "mode: OPTIONAL_MUTUAL, credentialName: door")),
			throughGateway("door", "mutual.shop.test, optional.shop.test"))
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		// seen returns what the service learns of a client that claims another identity.
		seen := func(host string, client *secrettest.Pair) string {
			t.Helper()
			through := clientOverTLS(t, port, tlsCall{name: host, of: of, client: client}.config())
			var got reply
			eventually(t, host+" leads to the service", func() error {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", nil)
				if err != nil {
					return err
				}
				r.Header.Set("X-Forwarded-Client-Cert", claim)
				if got, err = answer(through, r); err == nil && got.String() != "v1" {
					err = errors.New("it answers " + got.String())
				}
				return err
			})
			return strings.Join(got.echo.Header.Values("X-Forwarded-Client-Cert"), ",")
		}
		hash := sha256.Sum256(mine.Parsed.Raw)
		for _, host := range []string{"mutual.shop.test", "optional.shop.test"} {
			got := seen(host, &mine)
			for _, part := range []string{"Hash=" + hex.EncodeToString(hash[:]), `Subject="CN=client.shop.test"`} {
				if strings.Count(got, part) != 1 {
					t.Errorf("%s: the service sees %q, want %s", host, got, part)
				}
			}
			if strings.Contains(got, "mallory") || strings.Count(got, "Hash=") != 1 {
				t.Errorf("%s: the service sees what the client claims: %q", host, got)
			}
		}
		expectEqual(t, "what the service sees of a client without a certificate", seen("optional.shop.test", nil), "")
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}
