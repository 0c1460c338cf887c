package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// captureOut redirects what a machine's clients send to its sidecar, and lets in what comes.
const captureOut = `
table ip portolan {
	chain output {
		type nat hook output priority -100;
		meta mark 77 meta l4proto tcp redirect to :15001
	}
}
`

// peerEntry is a service of every kind of port at a workload with a sidecar.
const peerEntry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: app, namespace: shop}
spec:
  hosts: [app.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  addresses: [10.9.0.1]
  ports:
  - {number: 80, name: http, protocol: HTTP, targetPort: 8080}
  - {number: 81, name: http2, protocol: HTTP2, targetPort: 8081}
  - {number: 82, name: grpc, protocol: GRPC, targetPort: 8082}
  - {number: 5432, name: tcp, protocol: TCP}
  - {number: 90, name: plain, targetPort: 7000}
  endpoints: [{address: 10.0.0.1, serviceAccount: app, labels: {app: app, security.istio.io/tlsMode: istio}}]
`

// secretWord is in all that is sent, so that it can be looked for on the wire. A server of TCP
// greets with it.
const (
	secretWord   = "a-word-that-nobody-may-read"
	peerGreeting = "tcp " + secretWord
)

// shopAccounts begins the identities of the namespace shop.
const shopAccounts = "spiffe://cluster.local/ns/shop/sa/"

// peerMode is a PeerAuthentication of the namespace shop.
func peerMode(mode string) string {
	return "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: " + mode + "}}\n"
}

// identified returns the files of a certificate with an identity of the mesh.
func identified(t testing.TB, of *securetest.Authority, identity string) *certificateFiles {
	t.Helper()
	f := of.Write(t, t.TempDir(), of.Issue(t, securetest.Leaf{Identity: identity}))
	return &certificateFiles{f.Cert, f.Key, f.CA}
}

// peerMesh is a workload with a sidecar, 10.0.0.1, and a client with one, 10.0.0.2, each in a
// network of its own.
type peerMesh struct {
	*server
	t                testing.TB
	workload, client *namespace
	of               *securetest.Authority
	xds              string // where the sidecars reach the servers
	drain            int    // seconds that listeners drain
}

func newPeerMesh(t testing.TB, o serverOptions) *peerMesh {
	t.Helper()
	m := newPeerNetworks(t)
	m.server = startServer(t, o)
	m.xds = startSocketRelay(t, m.server.xds)
	m.apply(peerEntry)
	return m
}

// newPeerNetworks returns a mesh without a server.
func newPeerNetworks(t testing.TB) *peerMesh {
	t.Helper()
	needEnvoy(t)
	needNamespaces(t)
	m := &peerMesh{t: t, workload: newNamespace(t, "workload"), client: newNamespace(t, "client"), of: securetest.New(t, "authority")}
	cable(m.workload, m.client)
	m.client.ip("route", "add", "default", "via", "10.0.0.1")
	serveUpstream(t, "http", m.workload.listen("0.0.0.0:8080"))
	serveUpstream(t, "http2", m.workload.listen("0.0.0.0:8081"))
	servePeerRPC(t, m.workload.listen("0.0.0.0:8082"))
	serveTCPUpstream(t, peerGreeting, m.workload.listen("0.0.0.0:5432"))
	serveUpstream(t, "plain", m.workload.listen("0.0.0.0:7000"))
	m.workload.nft(captureBoth)
	m.client.nft(captureOut)
	return m
}

// sidecars starts both sidecars, with certificates of these identities.
func (m *peerMesh) sidecars(v protocol.Variant, workload, client *certificateFiles) (in, out *envoy) {
	m.t.Helper()
	in, out = m.sidecarOfApp(v, workload), m.sidecarOfClient(v, client)
	in.awaitWarm()
	out.awaitWarm()
	return in, out
}

func (m *peerMesh) sidecarOfApp(v protocol.Variant, certificate *certificateFiles) *envoy {
	m.t.Helper()
	return m.startEnvoy(m.appOptions(v, certificate))
}

func (m *peerMesh) appOptions(v protocol.Variant, certificate *certificateFiles) envoyOptions {
	return envoyOptions{kind: "sidecar", name: "app", labels: "app=app", interception: "REDIRECT", variant: v, drain: m.drain, in: m.workload, xds: m.xds, certificate: certificate}
}

func (m *peerMesh) sidecarOfClient(v protocol.Variant, certificate *certificateFiles) *envoy {
	m.t.Helper()
	return m.startEnvoy(m.clientOptions(v, certificate))
}

func (m *peerMesh) clientOptions(v protocol.Variant, certificate *certificateFiles) envoyOptions {
	return envoyOptions{kind: "sidecar", name: "client", ip: "10.0.0.2", interception: "REDIRECT", variant: v, drain: m.drain, in: m.client, xds: m.xds, certificate: certificate}
}

// through returns what a request gets that a program of the client sends to a port of the
// service, through its sidecar.
func (m *peerMesh) through(port int, path string) (reply, error) {
	return m.throughTo("app.shop.test", port, path)
}

// throughTo is through to another host at the service's address.
func (m *peerMesh) throughTo(host string, port int, path string) (reply, error) {
	return m.throughBy(m.t.Context(), m.client.marked(m.t, captureMark), host, port, path)
}

// throughBy is throughTo with a client of the caller.
func (m *peerMesh) throughBy(ctx context.Context, client *http.Client, host string, port int, path string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://10.9.0.1:%d%s", port, path), nil)
	if err != nil {
		return reply{}, err
	}
	r.Host = host
	return answer(client, r)
}

// bare returns an error unless a program without a sidecar gets an answer at a port of the
// workload.
func (m *peerMesh) bare(port int) error {
	switch port {
	case 5432:
		return greets(m.client, 0, "10.0.0.1:5432", "\x01hello\n", peerGreeting)
	case 8082:
		_, err := m.rpc(0, "10.0.0.1:8082")
		return err
	}
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, fmt.Sprintf("http://10.0.0.1:%d/", port), nil)
	if err != nil {
		return err
	}
	got, err := answer(m.client.http(m.t), r)
	if want := map[int]string{8080: "http", 8081: "http2", 7000: "plain"}[port]; err == nil && got.String() != want {
		err = errors.New("it answers " + got.String())
	}
	return err
}

// sniff counts the packets of a network's device that contain a marker, until the test ends.
func (n *namespace) sniff(device, marker string) *atomic.Int64 {
	n.t.Helper()
	var seen atomic.Int64
	var fd int
	if err := n.inside(func() (err error) {
		const everything = 0x0300 // ETH_P_ALL in network byte order
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: link.Index}); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}); err != nil {
		n.t.Fatalf("listen on %s: %v", device, err)
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		packet := make([]byte, 1<<16)
		for {
			select {
			case <-done:
				return
			default:
			}
			if size, _, err := unix.Recvfrom(fd, packet, 0); err == nil && bytes.Contains(packet[:size], []byte(marker)) {
				seen.Add(1)
			}
		}
	})
	n.t.Cleanup(func() {
		close(done)
		running.Wait()
		_ = unix.Close(fd)
	})
	return &seen
}

// TestEnvoyPeerModes: two sidecars talk over mutual TLS without a rule, for every kind of port,
// and each shows the other who it is. A program without a sidecar is let in as the mode says.
// Where TLS is claimed, no packet has what was sent.
func TestEnvoyPeerModes(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerMesh(t, serverOptions{})
		in, out := m.sidecars(v, identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"client"))
		wire := m.client.sniff("p", secretWord)
		for _, step := range []struct {
			mode            string
			encrypted, bare bool
		}{{"", true, true}, {"STRICT", true, false}, {"PERMISSIVE", true, true}, {"DISABLE", false, true}, {"STRICT", true, false}} {
			mode := "without a policy"
			if step.mode != "" {
				mode = step.mode
				m.apply(peerMode(mode))
			}
			for _, p := range m.probes() {
				what := mode + ": " + p.name
				eventually(t, what, func() error {
					shown, err := p.call()
					if mutual := strings.Contains(shown, "URI="+shopAccounts+"client"); err == nil && p.shows && mutual != step.encrypted {
						err = fmt.Errorf("the server saw %q", shown)
					}
					return err
				})
				before := wire.Load()
				if _, err := p.call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				switch seen := wire.Load() - before; {
				case step.encrypted && seen > 0:
					t.Errorf("%s: %d packets have what was sent", what, seen)
				case !step.encrypted && !p.kept:
					eventually(t, what+" is on the wire", func() error {
						if wire.Load() == before {
							return errors.New("no packet has what was sent")
						}
						return nil
					})
				}
			}
			for _, port := range []int{8080, 8081, 8082, 5432, 7000} {
				what := fmt.Sprintf("%s: port %d without a sidecar", mode, port)
				eventually(t, what, func() error {
					if err := m.bare(port); (err == nil) != step.bare {
						return fmt.Errorf("let in: %v: %w", err == nil, err)
					}
					return nil
				})
			}
		}
		m.expectNothingRejected()
		in.expectNothingRejected()
		out.expectNothingRejected()
	})
}

// TestEnvoyPeerIdentities: a server takes the certificates of its mesh alone, and a client the
// accounts of the service's endpoints. What Envoy counts says why a handshake failed.
func TestEnvoyPeerIdentities(t *testing.T) {
	t.Parallel()
	expired := func(t testing.TB, of *securetest.Authority) *certificateFiles {
		f := of.Write(t, t.TempDir(), of.Issue(t, securetest.Leaf{Identity: shopAccounts + "client", From: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour)}))
		return &certificateFiles{f.Cert, f.Key, f.CA}
	}
	for name, c := range map[string]struct {
		workload, client func(t testing.TB, of *securetest.Authority) *certificateFiles
		mesh             string
		// failed is the counter that says why, of the sidecar at that end; empty if they talk.
		failed string
		atApp  bool
		// plain tries without mutual TLS, too. No certificate counts there.
		plain bool
	}{
		"both of the mesh": {},
		"a client of another account": {
			client: func(t testing.TB, of *securetest.Authority) *certificateFiles {
				return identified(t, of, "spiffe://cluster.local/ns/far/sa/x")
			}},
		"a client of another root": {
			client: func(t testing.TB, of *securetest.Authority) *certificateFiles {
				f := identified(t, securetest.New(t, "stranger"), shopAccounts+"client")
				return &certificateFiles{f.chain, f.key, identified(t, of, shopAccounts+"x").roots} // it takes the server's
			}, failed: "fail_verify_error", atApp: true, plain: true},
		"an expired client": {client: expired, failed: "fail_verify_error", atApp: true},
		"a client of another trust domain": {
			client: func(t testing.TB, of *securetest.Authority) *certificateFiles {
				return identified(t, of, "spiffe://old.example/ns/shop/sa/client")
			},
			failed: "fail_verify_san", atApp: true},
		"a client of an alias": {
			client: func(t testing.TB, of *securetest.Authority) *certificateFiles {
				return identified(t, of, "spiffe://old.example/ns/shop/sa/client")
			},
			mesh: "trustDomainAliases: [old.example]"},
		"a server of another account": {
			workload: func(t testing.TB, of *securetest.Authority) *certificateFiles {
				return identified(t, of, shopAccounts+"other")
			},
			failed: "fail_verify_san"},
		"a server of an alias": {
			workload: func(t testing.TB, of *securetest.Authority) *certificateFiles {
				return identified(t, of, "spiffe://old.example/ns/shop/sa/app")
			},
			mesh: "trustDomainAliases: [old.example]"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newPeerMesh(t, serverOptions{meshConfig: c.mesh})
			own := func(make func(testing.TB, *securetest.Authority) *certificateFiles, account string) *certificateFiles {
				if make != nil {
					return make(t, m.of)
				}
				return identified(t, m.of, shopAccounts+account)
			}
			in, out := m.sidecars(protocol.Delta, own(c.workload, "app"), own(c.client, "client"))
			end := out
			if c.atApp {
				end = in
			}
			for _, mode := range []string{"PERMISSIVE", "STRICT"} {
				m.awaitSynced(m.apply(peerMode(mode)), "app", "client")
				for _, p := range m.probes() {
					if c.failed == "" {
						eventually(t, mode+": they talk "+p.name, func() error {
							shown, err := p.call()
							if err == nil && p.shows && !strings.Contains(shown, "URI=spiffe://") {
								err = fmt.Errorf("the server saw %q", shown)
							}
							return err
						})
						continue
					}
					before := end.failures(c.failed)
					eventually(t, mode+": "+p.name+": the handshake fails, for the reason that is counted", func() error {
						if _, err := p.call(); err == nil {
							return errors.New("it is answered")
						}
						if end.failures(c.failed) == before {
							return errors.New("nothing is counted as " + c.failed)
						}
						return nil
					})
				}
			}
			if !c.plain {
				return
			}
			m.apply(peerMode("DISABLE"))
			for _, p := range m.probes() {
				eventually(t, "without mutual TLS they talk "+p.name, func() error {
					shown, err := p.call()
					if err == nil && shown != "" {
						err = fmt.Errorf("the server saw %q", shown)
					}
					return err
				})
			}
		})
	}
}
