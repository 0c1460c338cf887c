package integration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// peerChange is a change of how the workload takes connections.
type peerChange struct {
	documents       string
	shown           bool // whether the mode ends connections of the other kind
	encrypted, bare bool
}

// labelled is the service with a label of its endpoint.
func labelled(mode string) string {
	return strings.Replace(peerEntry, "tlsMode: istio", "tlsMode: "+mode, 1)
}

// peerChanges go through all modes and labels. They begin and end without a demand.
var peerChanges = []peerChange{
	{documents: peerMode("STRICT"), shown: true, encrypted: true},
	{documents: peerMode("PERMISSIVE"), bare: true},
	{documents: labelled("disabled"), bare: true},
	{documents: labelled("istio"), bare: true},
	{documents: peerMode("DISABLE"), shown: true, bare: true},
	{documents: peerMode("STRICT"), shown: true, encrypted: true},
	{documents: peerMode("DISABLE"), shown: true, bare: true},
	{documents: peerMode("PERMISSIVE"), bare: true},
}

// peerLoad are some 500 requests a second through both sidecars, and connections of bytes.
type peerLoad struct {
	m               *peerMesh
	requests, bytes *load
}

// startPeerLoad calls the service on kept and on new connections, when both sidecars talk.
func (m *peerMesh) startPeerLoad() *peerLoad {
	m.t.Helper()
	for _, port := range []int{80, 90} {
		eventually(m.t, fmt.Sprintf("both talk at port %d", port), func() error {
			_, err := m.through(port, "/")
			return err
		})
	}
	return &peerLoad{
		m: m, requests: m.call("requests", 80, 81),
		// A port that declares nothing has bytes for the sidecar of the server. A connection of
		// bytes cannot be told to end: it is cut when a listener is drained. Only a change to
		// DISABLE and back drains.
		bytes: m.call("bytes", 90),
	}
}

// call loads ports through the sidecar of the client.
func (m *peerMesh) call(name string, ports ...int) *load {
	l := &load{t: m.t, name: name, counts: map[string]int{}}
	var calls []func(context.Context)
	for _, port := range ports {
		for _, kept := range []bool{true, false} {
			client := m.client.marked(m.t, captureMark)
			client.Transport.(*http.Transport).DisableKeepAlives = !kept
			calls = append(calls, func(ctx context.Context) {
				got, err := m.throughBy(ctx, client, "app.shop.test", port, "/")
				l.count(ctx, got, err)
			})
		}
	}
	l.stop = atPace(m.t, calls...)
	return l
}

// change makes a change under load, and checks that all follow it and that no request fails.
func (l *peerLoad) change(what string, c peerChange) {
	m := l.m
	m.t.Helper()
	if strings.Contains(c.documents, "DISABLE") {
		l.bytes.expectUnharmed()
	}
	m.must(c.documents, "apply", "-f", "-", "--wait", "--timeout", "90s")
	l.requests.sample(100)
	if c.shown {
		eventually(m.t, what+": open connections of the former mode end", func() error {
			got, err := m.through(80, "/")
			mutual := strings.Contains(got.echo.Header.Get("X-Forwarded-Client-Cert"), "URI="+shopAccounts+"client")
			if err == nil && mutual != c.encrypted {
				err = fmt.Errorf("the server saw %s %v", got, got.echo.Header)
			}
			return err
		})
	}
	if err := m.bare(8080); (err == nil) != c.bare {
		m.t.Errorf("%s: without a sidecar: %v", what, err)
	}
	if failures := append(l.requests.failed(), l.bytes.failed()...); len(failures) > 0 {
		m.t.Fatalf("%s: %d requests failed, the first: %s", what, len(failures), failures[0])
	}
}

// TestEnvoyPeerChanges: the modes of a service, and the label of its endpoint, change under
// requests on kept and new connections, with two servers, of which one is killed in the middle.
// No request fails, and apply --wait ends when the last phase is in use.
func TestEnvoyPeerChanges(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerNetworks(t)
		m.drain = 2
		etcd := startEtcd(t)
		m.server = startServer(t, serverOptions{etcd: etcd})
		other := startServer(t, serverOptions{etcd: etcd})
		m.xds = startSocketRelay(t, m.server.xds, other.xds)
		m.apply(peerEntry)
		in, out := m.sidecars(v, identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"client"))
		l := m.startPeerLoad()
		for i, c := range peerChanges {
			if i == 5 {
				m.kill()
				m.server = other
			}
			l.change(fmt.Sprintf("step %d", i), c)
		}
		l.requests.expectUnharmed()
		if out := m.try("{apiVersion: portolan.io/v1, kind: PeerPhase, metadata: {name: default, namespace: shop}, spec: {}}", "apply", "-f", "-"); out.code == 0 || !strings.Contains(out.stderr, "the leading server alone writes it") {
			t.Errorf("a user writes a PeerPhase: exit code %d, %s", out.code, out.stderr)
		}
		m.expectNothingRejected()
		in.expectNothingRejected()
		out.expectNothingRejected()
	})
}

// onceEach has a connection between the sidecars for each request to port 80.
const onceEach = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: app, namespace: shop}
spec:
  host: app.shop.test
  trafficPolicy: {portLevelSettings: [{port: {number: 80}, connectionPool: {http: {maxRequestsPerConnection: 1}}}]}
`

// shortLived is a certificate of a sidecar that lives only a while, in files that are replaced.
type shortLived struct {
	of       *securetest.Authority
	identity string
	dir      string
	current  secrettest.Pair
}

// renew replaces the certificate by one with a lifetime, and returns its files.
func (c *shortLived) renew(t testing.TB, lifetime time.Duration) *certificateFiles {
	t.Helper()
	c.current = c.of.Issue(t, securetest.Leaf{Identity: c.identity, Until: time.Now().Add(lifetime)})
	f := c.of.Write(t, c.dir, c.current)
	return &certificateFiles{f.Cert, f.Key, f.CA}
}

// usedBy waits until a sidecar has the certificate in all its TLS settings.
func (c *shortLived) usedBy(e *envoy) {
	e.t.Helper()
	want := fmt.Sprintf("%032x", c.current.Parsed.SerialNumber)
	eventually(e.t, e.name+" has its new certificate", func() error {
		text, err := e.get("/certs")
		if err != nil {
			return err
		}
		var shown struct {
			Certificates []struct {
				Chain []struct {
					Serial string `json:"serial_number"`
				} `json:"cert_chain"`
			}
		}
		if err := json.Unmarshal(text, &shown); err != nil {
			return err
		}
		some := false
		for _, certificate := range shown.Certificates {
			for _, at := range certificate.Chain {
				if some = true; strings.TrimLeft(at.Serial, "0") != strings.TrimLeft(want, "0") {
					return fmt.Errorf("it has %s, not %s", at.Serial, want)
				}
			}
		}
		if !some {
			return errors.New("it has none")
		}
		return nil
	})
}

// TestSoakPeerCertificatesRotate: the certificates of both sidecars are replaced again and again
// before they expire, as modes and labels change. No request fails, on kept and new connections,
// and new connections show the new certificates. The files come to both variants alike.
func TestSoakPeerCertificatesRotate(t *testing.T) {
	t.Parallel()
	lifetime, rounds := 5*time.Second, 2
	if long := longtest.Soak(t); long > 0 {
		lifetime = 30 * time.Second
		rounds = max(10, int(long/(lifetime*2/3)))
	}
	m := newPeerMesh(t, serverOptions{})
	m.apply(onceEach)
	app := &shortLived{of: m.of, identity: shopAccounts + "app", dir: t.TempDir()}
	client := &shortLived{of: m.of, identity: shopAccounts + "client", dir: t.TempDir()}
	in, out := m.sidecars(protocol.Delta, app.renew(t, lifetime), client.renew(t, lifetime))
	l := m.startPeerLoad()
	for round := range rounds {
		what := fmt.Sprintf("round %d", round)
		due := app.current.Parsed.NotAfter.Add(-lifetime / 3)
		l.change(what, peerChanges[round%len(peerChanges)])
		eventually(t, what+": two thirds of a lifetime are over", func() error {
			if left := time.Until(due); left > 0 {
				return fmt.Errorf("%s are left", left)
			}
			return nil
		})
		app.renew(t, lifetime)
		client.renew(t, lifetime)
		app.usedBy(in)
		client.usedBy(out)
	}
	l.change("at the end", peerChanges[0])
	eventually(t, "the server sees the last certificate", func() error {
		got, err := m.through(80, "/")
		want := fmt.Sprintf("Hash=%x", sha256.Sum256(client.current.Parsed.Raw))
		if shown := got.echo.Header.Get("X-Forwarded-Client-Cert"); err == nil && !strings.Contains(shown, want) {
			err = fmt.Errorf("it sees %q, not %s", shown, want)
		}
		return err
	})
	l.requests.expectUnharmed()
	l.bytes.expectUnharmed()
	m.expectNothingRejected()
	in.expectNothingRejected()
	out.expectNothingRejected()
}
