package integration

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// httpsServer is a server of a Gateway for one host. name is the first label of the host and
// the name of the port.
func httpsServer(port int, name, tls string) string {
	return fmt.Sprintf("\n  - {port: {number: %d, name: %s, protocol: HTTPS}, bind: 127.0.0.1, hosts: [%[2]s.shop.test], tls: {%s}}", port, name, tls)
}

func tlsGateway(name string, servers ...string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: $name, namespace: shop}
spec:
  selector: {app: edge}
  servers: $servers
`, "$name", name, "$servers", strings.Join(servers, ""))
}

// tlsAnswer makes a Gateway answer requests for a host with the first label of the host.
func tlsAnswer(gateway, name string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  gateways: [$gateway]
  http: [{directResponse: {status: 200, body: {string: $name}}}]
`, "$gateway", gateway, "$name", name)
}

// keyPair is a secret with a certificate, its key, and more entries.
func keyPair(name string, p secrettest.Pair, more map[string][]byte) string {
	data := map[string][]byte{secret.TLSCert: p.Cert, secret.TLSKey: p.Key}
	for k, v := range more {
		data[k] = v
	}
	return "---\n" + xdstest.Secret("shop/"+name, data)
}

// TestEnvoyGatewayTLS: servers of all modes that terminate TLS, on one port. Clients have
// valid, wrong, expired, revoked or no certificates; names, versions and protocols vary.
func TestEnvoyGatewayTLS(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port, plain := startServer(t, serverOptions{}), freePort(t), freePort(t)
		of, stranger := newAuthority(t, "authority"), newAuthority(t, "stranger")
		right, wrong, expired, revoked := of.issue(time.Hour, "client.shop.test"), stranger.issue(time.Hour, "client.shop.test"), of.issue(-time.Hour, "client.shop.test"), of.issue(time.Hour, "revoked.shop.test")
		other := of.issue(time.Hour, "other.shop.test")
		door, second := of.issue(time.Hour, "*.shop.test"), of.issue(time.Hour, "second.shop.test")
		documents := []string{
			keyPair("door", door, nil), keyPair("second", second, nil),
			keyPair("clients", door, map[string][]byte{secret.TLSAuthority: of.pair.Cert, secret.TLSRevoked: of.revokes(revoked)}),
			tlsGateway("modes",
				httpsServer(port, "simple", "mode: SIMPLE, credentialName: door"),
				httpsServer(port, "second", "mode: SIMPLE, credentialName: second"),
				httpsServer(port, "mutual", "mode: MUTUAL, credentialName: clients"),
				httpsServer(port, "elsewhere", "mode: MUTUAL, credentialName: door, caCertCredentialName: clients"),
				httpsServer(port, "optional", "mode: OPTIONAL_MUTUAL, credentialName: clients"),
				httpsServer(port, "named", "mode: MUTUAL, credentialName: clients, subjectAltNames: [client.shop.test]"),
				httpsServer(port, "hashed", "mode: MUTUAL, credentialName: clients, verifyCertificateHash: ["+certificateHash(right)+"]"),
				httpsServer(port, "pinned", "mode: MUTUAL, credentialName: clients, verifyCertificateSpki: ["+keyHash(right)+"]"),
				httpsServer(port, "old", "mode: SIMPLE, credentialName: door, maxProtocolVersion: TLSV1_2, cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384]"),
				httpsServer(port, "new", "mode: SIMPLE, credentialName: door, minProtocolVersion: TLSV1_3"),
				httpsServer(port, "closed", "mode: SIMPLE, credentialName: nowhere"),
				fmt.Sprintf("\n  - {port: {number: %d, name: plain, protocol: HTTP}, bind: 127.0.0.1, hosts: ['*'], tls: {httpsRedirect: true}}", plain)),
		}
		names := []string{"simple", "second", "mutual", "elsewhere", "optional", "named", "hashed", "pinned", "old", "new", "closed"}
		for _, name := range names {
			documents = append(documents, tlsAnswer("modes", name))
		}
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		s.apply(documents...) // all in one batch

		call := func(name string, client *secrettest.Pair) tlsCall {
			return tlsCall{port: port, name: name + ".shop.test", of: of, client: client}
		}
		// The first request that gets a connection must get an answer.
		var first tlsReply
		eventually(t, "the port is open", func() (err error) {
			if first, err = call("simple", nil).get(t.Context()); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a request that connected: %v", err)
				return nil
			}
			return err
		})
		if first.body != "simple" || first.proto != "HTTP/2.0" || first.version != tls.VersionTLS13 {
			t.Errorf("the first answer is %+v", first)
		}
		bound := func(c tlsCall, min, max uint16) tlsCall {
			c.min, c.max = min, max
			return c
		}
		for _, c := range []struct {
			what string
			call tlsCall
			want string // the answer, or part of the server's alert
		}{
			{"another certificate", call("second", nil), "second"},
			{"a client's certificate", call("mutual", &right), "mutual"},
			{"the authority of another secret", call("elsewhere", &right), "elsewhere"},
			{"a certificate that is not asked for", call("simple", &wrong), "simple"},
			{"none of a client that may", call("optional", nil), "optional"},
			{"one of a client that may", call("optional", &right), "optional"},
			{"the name of a client", call("named", &right), "named"},
			{"the hash of a certificate", call("hashed", &right), "hashed"},
			{"the hash of a key", call("pinned", &right), "pinned"},
			{"TLS 1.2", bound(call("old", nil), tls.VersionTLS12, tls.VersionTLS13), "old"},
			{"TLS 1.3", bound(call("new", nil), tls.VersionTLS12, tls.VersionTLS13), "new"},
			{"no certificate", call("mutual", nil), "certificate required"},
			{"of another authority", call("mutual", &wrong), "unknown certificate authority"},
			{"expired", call("mutual", &expired), "expired certificate"},
			{"revoked", call("mutual", &revoked), "revoked certificate"},
			{"revoked, by another secret", call("elsewhere", &revoked), "revoked certificate"},
			{"of another authority, of a client that may", call("optional", &wrong), "unknown certificate authority"},
			{"expired, of a client that may", call("optional", &expired), "expired certificate"},
			{"another name", call("named", &other), "remote error: tls: "},
			{"another certificate than that of the hash", call("hashed", &other), "remote error: tls: "},
			{"another key than that of the hash", call("pinned", &other), "remote error: tls: "},
			{"too new", bound(call("old", nil), tls.VersionTLS13, tls.VersionTLS13), "protocol version not supported"},
			{"too old", bound(call("new", nil), tls.VersionTLS12, tls.VersionTLS12), "protocol version not supported"},
			{"no certificate of the server", call("closed", nil), "EOF|reset"},
			{"a name of nobody", call("nobody", nil), "EOF|reset"},
			{"no name", tlsCall{port: port}, "EOF|reset"},
		} {
			if name, _, _ := strings.Cut(c.call.name, "."); c.want == name {
				for _, http1 := range []bool{false, true} {
					c.call.http1 = http1
					got, err := c.call.get(t.Context())
					if err != nil || got.body != c.want || got.proto != map[bool]string{false: "HTTP/2.0", true: "HTTP/1.1"}[http1] {
						t.Errorf("%s: %+v, %v", c.what, got, err)
					}
				}
				continue
			}
			err := c.call.refusal(t.Context())
			if err == nil || !containsAny(err.Error(), strings.Split(c.want, "|")) {
				t.Errorf("%s: the refusal is %v, want %s", c.what, err, c.want)
			}
		}
		if got, err := call("second", nil).get(t.Context()); err != nil || got.leaf.Subject.CommonName != "second.shop.test" {
			t.Errorf("the certificate is for %v, %v", got.leaf, err)
		}
		if got := send(t, request{port: plain, host: "simple.shop.test", path: "/a?b=c"}); got.status != http.StatusMovedPermanently || got.location != "https://simple.shop.test/a?b=c" {
			t.Errorf("the redirect is %d to %s", got.status, got.location)
		}
		if _, err := do(t.Context(), clientOf(t), request{port: port, host: "simple.shop.test"}); err == nil {
			t.Error("a request in plaintext is answered")
		}

		e, err := s.explain("gateway/shop/modes", fmt.Sprintf("https://mutual.shop.test:%d", port), request{})
		if err != nil || e.Outcome != explain.Answered || e.Status != http.StatusOK || e.Route == nil || e.Route.Object != "virtualservice/shop/mutual" {
			t.Errorf("the explanation is %v, %+v", err, e)
		}
		if e, err = s.explain("gateway/shop/modes", fmt.Sprintf("https://closed.shop.test:%d", port), request{}); err != nil || e.Outcome != explain.Fails || !strings.Contains(e.Reason, "secret nowhere") {
			t.Errorf("the explanation is %v, %+v", err, e)
		}
		s.awaitSynced(s.remove(documents...), "edge")
		awaitClosed(t, port)
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// certificateHash returns a certificate's hash in Envoy's form: the SHA-256, in hexadecimal.
func certificateHash(p secrettest.Pair) string {
	block, _ := pem.Decode(p.Cert)
	return fmt.Sprintf("%x", sha256.Sum256(block.Bytes))
}

// keyHash returns a public key's hash in Envoy's form: the SHA-256, in base64.
func keyHash(p secrettest.Pair) string {
	block, _ := pem.Decode(p.Cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(err) // it was just made
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// TestEnvoyGatewaySecretsComeAndGo: a server opens when its secret comes, and closes when it
// goes. Meanwhile another Gateway on the port serves without interruption, also when the
// listener changes and the control plane restarts.
func TestEnvoyGatewaySecretsComeAndGo(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, port := startServer(t, serverOptions{dataDir: t.TempDir()}), freePort(t)
		of := newAuthority(t, "authority")
		kept := []string{keyPair("kept", of.issue(time.Hour, "kept.shop.test"), nil), tlsGateway("kept", httpsServer(port, "kept", "mode: SIMPLE, credentialName: kept")), tlsAnswer("kept", "kept")}
		late := keyPair("late", of.issue(time.Hour, "late.shop.test"), nil)
		gateway := tlsGateway("late", httpsServer(port, "late", "mode: SIMPLE, credentialName: late"))
		s.apply(append(kept, gateway, tlsAnswer("late", "late"))...)
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		call := func(name string) tlsCall { return tlsCall{port: port, name: name + ".shop.test", of: of} }
		awaitTLSReply(t, call("kept"), "kept")
		calls := startTLSCalls(t, call("kept"))
		if _, err := call("late").get(t.Context()); err == nil {
			t.Error("a server without its certificate takes a connection")
		}
		for range 2 {
			s.apply(late)
			awaitTLSReply(t, call("late"), "late")
			s.apply(tlsGateway("late", httpsServer(port, "late", "mode: SIMPLE, credentialName: late"), httpsServer(port, "more", "mode: SIMPLE, credentialName: kept")), tlsAnswer("late", "more"))
			more := call("more")
			more.of = nil
			awaitTLSReply(t, more, "more")
			s.kill()
			s.start()
			s.awaitSynced(s.apply(gateway), "edge")
			eventually(t, "the server that is gone is closed", func() error {
				if _, err := more.get(t.Context()); err == nil {
					return errors.New("it takes connections")
				}
				return nil
			})
			s.awaitSynced(s.remove(late), "edge")
			eventually(t, "the server without its certificate is closed", func() error {
				if _, err := call("late").get(t.Context()); err == nil {
					return errors.New("it takes connections")
				}
				return nil
			})
		}
		calls()
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}

// startTLSCalls sends one request after another, each on a new connection, until the caller
// calls end. Each must be answered with the first label of the name.
func startTLSCalls(t testing.TB, c tlsCall) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	want, _, _ := strings.Cut(c.name, ".")
	var running sync.WaitGroup
	n, failed := 0, []string(nil)
	running.Go(func() {
		for ctx.Err() == nil {
			got, err := c.get(context.WithoutCancel(ctx))
			if n++; err != nil || got.body != want {
				failed = append(failed, fmt.Sprintf("%d %q %v", got.status, got.body, err))
			}
		}
	})
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return func() {
		t.Helper()
		stop()
		if n == 0 || len(failed) > 0 {
			t.Errorf("of %d requests %d failed: %.2000v", n, len(failed), failed)
		}
	}
}
