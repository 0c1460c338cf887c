package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// rotatingClient is a sidecar's certificate that the test replaces repeatedly: a secret, or
// files.
type rotatingClient struct {
	name     string
	settings string
	// replace stores a certificate, and returns when the sidecar has it.
	replace func(secrettest.Pair)
	// sends is how many secrets the server sends for one replacement.
	sends int
}

// TestSoakClientCertificatesRotate replaces a sidecar's client certificate repeatedly, under
// requests on kept and on new connections. No request fails, new connections use the new
// certificate, and the server sends nothing but the secret.
func TestSoakClientCertificatesRotate(t *testing.T) {
	long := longtest.Soak(t)
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, of, port := startServer(t, serverOptions{}), newAuthority(t, "authority"), freePort(t)
		first := of.issue(24*time.Hour, "round-0")
		files := newCertificateFiles(t, first, of)
		store := func(pair secrettest.Pair) string {
			return credential("client", map[string][]byte{secret.Cert: pair.Cert, secret.Key: pair.Key, secret.Authority: of.pair.Cert})
		}
		clients := []rotatingClient{
			{"secret", "{mode: MUTUAL, credentialName: client}", func(pair secrettest.Pair) { s.awaitSynced(s.apply(store(pair)), "client") }, 1},
			{
				"files", fmt.Sprintf("{mode: MUTUAL, caCertificates: %s, clientCertificate: %s, privateKey: %s}", files.roots, files.chain, files.key),
				func(pair secrettest.Pair) { files.replace(t, pair) }, 0,
			},
		}
		documents := []string{store(first)}
		opened := map[string]*atomic.Int64{}
		for _, c := range clients {
			for _, kind := range []string{"kept", "fresh"} {
				name := c.name + "-" + kind
				opened[name] = &atomic.Int64{}
				rule := tlsRule(name, c.settings, "workloadSelector: {matchLabels: {app: client}},")
				if kind == "kept" {
					rule = strings.Replace(rule, "connectionPool: {http: {maxRequestsPerConnection: 1}},", "", 1)
				}
				documents = append(documents, tlsEntry(name, port, "HTTP", tlsUpstream(t, name, verifying(t, of, name+".shop.test", opened[name]))), rule)
			}
		}
		s.apply(documents...)
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", labels: "app=client", variant: v})
		for _, c := range clients {
			c.rotate(t, s, of, port, long/2, opened[c.name+"-kept"])
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// rotate replaces the certificate for a time, and at least a few times, under 500 requests a
// second.
func (c rotatingClient) rotate(t *testing.T, s *server, of *authority, port int, long time.Duration, opened *atomic.Int64) {
	const rounds = 3
	at := func(kind string) request { return request{port: port, host: c.name + "-" + kind + ".shop.test"} }
	awaitReply(t, at("kept"), "round-0")
	awaitReply(t, at("fresh"), "round-0")
	before := opened.Load()
	kept := startLoad(t, c.name+": requests on kept connections", at("kept"))
	fresh := startLoad(t, c.name+": requests on new connections", at("fresh"))
	kept.sample(20)
	fresh.sample(20)
	begun := time.Now()
	for round := 1; round <= rounds || time.Since(begun) < long; round++ {
		name, sent := fmt.Sprintf("round-%d", round), s.sentResources()
		c.replace(of.issue(24*time.Hour, name))
		told := time.Now()
		eventually(t, "new connections show the certificate of "+name, func() error {
			if n := fresh.snapshot(); n[name] == 0 {
				return fmt.Errorf("%s: the service saw %v; failures %v", c.name, n, fresh.failed())
			}
			return nil
		})
		if round <= rounds {
			t.Logf("%s: %s was seen %s after the proxy had it", c.name, name, time.Since(told))
		}
		if n := nonzero(less(s.sentResources(), sent)); len(n) > 1 || n["SDS"] != c.sends {
			t.Errorf("%s: %s: sent %v, want %d secrets", c.name, name, n, c.sends)
		}
		kept.sample(20)
		seen := fresh.sample(20)
		total := 0
		for _, n := range seen {
			total += n
		}
		if old := total - seen[name]; old > loadWorkers { // those in flight
			t.Errorf("%s: %s: once it was shown, the service saw %v", c.name, name, seen)
		}
	}
	kept.expectUnharmed()
	fresh.expectUnharmed()
	// One connection for each worker of the load; awaitReply's may be among them.
	if n := opened.Load() - before; n > loadWorkers {
		t.Errorf("%s: %d connections were opened for %d that are kept", c.name, n, loadWorkers)
	}
}

// verifying returns the TLS settings of a server that verifies clients by an authority, and
// counts their connections.
func verifying(t testing.TB, of *authority, name string, opened *atomic.Int64) *tls.Config {
	t.Helper()
	out := serverOf(t, of.issue(24*time.Hour, name))
	out.ClientAuth, out.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	out.ClientCAs.AddCert(of.pair.Parsed)
	out.SessionTicketsDisabled = true
	out.VerifyConnection = func(tls.ConnectionState) error {
		opened.Add(1)
		return nil
	}
	return out
}
