package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
)

// sdsAgent is what serves a machine's certificate on a socket.
type sdsAgent struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	t      testing.TB
	socket string
	server *grpc.Server
	served chan struct{} // closed when server has ended

	mu      sync.Mutex
	content [3][]byte // the chain, the key, the roots
	version int
	changed chan struct{} // closed when content changes
}

func startSDSAgent(t testing.TB, of *securetest.Authority, identity string) *sdsAgent {
	t.Helper()
	a := &sdsAgent{t: t, socket: filepath.Join(t.TempDir(), "sds"), changed: make(chan struct{})}
	a.issue(of, securetest.Leaf{Identity: identity})
	a.start()
	t.Cleanup(a.stop)
	return a
}

// issue serves a new certificate from now on, and returns its serial number as Envoy writes it.
func (a *sdsAgent) issue(of *securetest.Authority, leaf securetest.Leaf) string {
	a.t.Helper()
	pair := of.Issue(a.t, leaf)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.content = [3][]byte{pair.Cert, pair.Key, of.Cert}
	a.version++
	close(a.changed)
	a.changed = make(chan struct{})
	return pair.Parsed.SerialNumber.Text(16)
}

func (a *sdsAgent) start() {
	a.t.Helper()
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		a.t.Fatal(err)
	}
	a.server, a.served = grpc.NewServer(), make(chan struct{})
	secretv3.RegisterSecretDiscoveryServiceServer(a.server, a)
	go func(server *grpc.Server, done chan struct{}) {
		defer close(done)
		_ = server.Serve(l)
	}(a.server, a.served)
}

// stop ends the agent, and takes its socket away.
func (a *sdsAgent) stop() {
	a.server.Stop()
	<-a.served
}

// StreamSecrets implements secretv3.SecretDiscoveryServiceServer.
func (a *sdsAgent) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	requests, failed := make(chan *discoveryv3.DiscoveryRequest), make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	var names []string
	sent := 0
	for {
		a.mu.Lock()
		version, content, changed := a.version, a.content, a.changed
		a.mu.Unlock()
		if len(names) > 0 && sent != version {
			if err := stream.Send(a.response(names, version, content)); err != nil {
				return err
			}
			sent = version
		}
		select {
		case err := <-failed:
			return err
		case r := <-requests:
			if strings.Join(names, " ") != strings.Join(r.GetResourceNames(), " ") {
				names, sent = r.GetResourceNames(), 0
			}
		case <-changed:
		}
	}
}

func (a *sdsAgent) response(names []string, version int, content [3][]byte) *discoveryv3.DiscoveryResponse {
	out := &discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(version), Nonce: fmt.Sprint(version), TypeUrl: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"}
	for _, name := range names {
		secret := socket.CertificateSecret(name, content[0], content[1])
		if name == "ROOTCA" {
			secret = socket.RootsSecret(name, content[2], nil)
		}
		packed, err := anypb.New(secret)
		if err != nil {
			a.t.Error(err)
		}
		out.Resources = append(out.Resources, packed)
	}
	return out
}

// TestEnvoySDSSocket: sidecars have their certificates from a socket of their machine, also new
// ones. While the socket is away nothing goes in plaintext.
func TestEnvoySDSSocket(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		const marker = "a-word-that-nobody-may-read"
		m := newPeerMesh(t, serverOptions{})
		app, client := startSDSAgent(t, m.of, shopAccounts+"app"), startSDSAgent(t, m.of, shopAccounts+"client")
		wire := m.client.sniff("p", marker)
		start := func() (in, out *envoy) {
			o := m.clientOptions(v, nil)
			o.sdsSocket = client.socket
			in = m.launchEnvoy(envoyOptions{kind: "sidecar", name: "app", labels: "app=app", interception: "REDIRECT", variant: v, in: m.workload, xds: m.xds, sdsSocket: app.socket})
			out = m.launchEnvoy(o)
			in.awaitReady()
			out.awaitReady()
			return in, out
		}
		in, out := start()
		call := func(what string, answered bool, identity string) {
			t.Helper()
			eventually(t, what, func() error {
				got, err := m.through(80, "/"+marker)
				shown := got.echo.Header.Get("X-Forwarded-Client-Cert")
				if ok := err == nil && got.status == http.StatusOK; ok != answered || ok && !strings.Contains(shown, "URI="+shopAccounts+identity) {
					return fmt.Errorf("it gets %s, and the server saw %q: %w", got, shown, cmp.Or(err, errors.New("no error")))
				}
				return nil
			})
			if err := m.bare(8080); err == nil {
				t.Errorf("%s: the workload takes plaintext", what)
			}
			if seen := wire.Load(); seen > 0 {
				t.Errorf("%s: %d packets have what was sent", what, seen)
			}
		}
		m.awaitSynced(m.revision(), "app", "client")
		m.must(peerMode("STRICT"), "apply", "-f", "-", "--wait")
		call("both have certificates", true, "client")

		caller := m.client.marked(t, captureMark)
		load := atPace(t, func(ctx context.Context) {
			if got, err := m.throughBy(ctx, caller, "app.shop.test", 80, "/"); ctx.Err() == nil && (err != nil || got.status != http.StatusOK) {
				t.Errorf("while certificates change: %s, %v", got, err)
			}
		})
		for range 3 {
			of := map[*envoy]string{
				in:  app.issue(m.of, securetest.Leaf{Identity: shopAccounts + "app"}),
				out: client.issue(m.of, securetest.Leaf{Identity: shopAccounts + "client"}),
			}
			for e, serial := range of {
				eventually(t, e.name+" takes a new certificate", func() error { return e.presents(serial) })
			}
			call("new certificates", true, "client")
		}
		load()

		in.expectNothingRejected()
		out.expectNothingRejected()
		m.expectNothingRejected()
		if v != protocol.Delta { // the rest waits, and has nothing to do with the server
			return
		}
		client.stop()
		app.stop()
		call("the sockets are away", true, "client")
		in.process.kill()
		out.process.kill()
		start()
		call("the sidecars start without their sockets", false, "")
		client.start()
		app.start()
		call("the sockets are back", true, "client")
	})
}

// TestEnvoyEndsPlaintextWithoutSDSSocket: a sidecar without its socket speaks plaintext where the
// mesh says so. When that ends its calls fail, or it refuses those of others, until the socket is
// there.
func TestEnvoyEndsPlaintextWithoutSDSSocket(t *testing.T) {
	const marker = "a-word-that-nobody-may-read"
	for name, c := range map[string]struct {
		mode string
		in   bool // whether the workload lacks the socket, else the client does
		call func(m *peerMesh) error
	}{
		"a client": {"PERMISSIVE", false, func(m *peerMesh) error {
			got, err := m.through(80, "/"+marker)
			if err == nil && got.status != http.StatusOK {
				err = errors.New("it gets " + got.String())
			}
			return err
		}},
		"a workload": {"STRICT", true, func(m *peerMesh) error { return m.bare(8080) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newPeerMesh(t, serverOptions{})
			const rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: app, namespace: shop}\nspec: {host: app.shop.test, trafficPolicy: {tls: {mode: DISABLE}}}\n"
			m.apply(rule, strings.Replace(peerMode("DISABLE"), "name: default,", "name: default, annotations: {portolan.io/phase: none},", 1))
			agent := startSDSAgent(t, m.of, shopAccounts+"app")
			agent.stop()
			app := envoyOptions{kind: "sidecar", name: "app", labels: "app=app", interception: "REDIRECT", variant: protocol.Delta, in: m.workload, xds: m.xds}
			client := m.clientOptions(protocol.Delta, nil)
			if c.in {
				app.sdsSocket, client.certificate = agent.socket, identified(t, m.of, shopAccounts+"client")
			} else {
				app.certificate, client.sdsSocket = identified(t, m.of, shopAccounts+"app"), agent.socket
			}
			m.startEnvoy(app)
			m.startEnvoy(client)
			eventually(t, "plaintext goes through", func() error { return c.call(m) })

			m.remove(rule)
			m.must(peerMode(c.mode), "apply", "-f", "-", "--wait")
			eventually(t, "plaintext ends", func() error {
				if c.call(m) == nil {
					return errors.New("it goes through")
				}
				return nil
			})
			wire := m.client.sniff("p", marker)
			for range 20 {
				if c.call(m) == nil {
					t.Error("plaintext goes through again")
				}
			}
			if seen := wire.Load(); seen > 0 {
				t.Errorf("%d packets have what was sent", seen)
			}
			agent.start()
			eventually(t, "the socket is there", func() error {
				got, err := m.through(80, "/"+marker)
				if shown := got.echo.Header.Get("X-Forwarded-Client-Cert"); err == nil && !strings.Contains(shown, "URI="+shopAccounts) {
					err = fmt.Errorf("it gets %s, and the server saw %q", got, shown)
				}
				return err
			})
			if seen := wire.Load(); seen > 0 {
				t.Errorf("the socket is there: %d packets have what was sent", seen)
			}
		})
	}
}

// TestEnvoySecureXDSBySocket: an Envoy connects to its server with the certificate of its socket,
// and with the next one when that expires. One that starts without the socket connects once it is
// there.
func TestEnvoySecureXDSBySocket(t *testing.T) {
	needEnvoy(t)
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startSecureServer(t, serverOptions{})
		s.apply(plainEntry("first"))
		agent := startSDSAgent(t, s.authority, webIdentity)
		agent.stop()
		agent.issue(s.authority, securetest.Leaf{Identity: webIdentity, Until: time.Now().Add(10 * time.Second)})
		web := s.launchEnvoy(envoyOptions{kind: "sidecar", name: "web", xds: s.secureXDS, variant: v, sdsSocket: agent.socket, secure: true})
		agent.start()
		web.awaitCluster("outbound|80||first.shop.example", true)
		serial := agent.issue(s.authority, securetest.Leaf{Identity: webIdentity})
		eventually(t, "it has the new certificate alone", func() error { return web.presents(serial) })
		eventually(t, "the server ends the stream of the first certificate", func() error {
			if !strings.Contains(s.process.output(), "closing a connection whose certificate or token has expired") {
				return errors.New("it has not")
			}
			return nil
		})
		s.apply(plainEntry("second"))
		web.awaitCluster("outbound|80||second.shop.example", true)
		web.expectNothingRejected()
	})
}

// presents returns an error unless all certificates of an Envoy have this serial number.
func (e *envoy) presents(serial string) error {
	raw, err := e.get("/certs")
	if err != nil {
		return err
	}
	var dump struct {
		Certificates []struct {
			Chain []struct {
				Serial string `json:"serial_number"`
			} `json:"cert_chain"`
		}
	}
	if err := json.Unmarshal(raw, &dump); err != nil {
		return err
	}
	found := false
	for _, c := range dump.Certificates {
		for _, one := range c.Chain {
			if found = true; strings.TrimLeft(one.Serial, "0") != serial {
				return fmt.Errorf("it has %s, not %s", one.Serial, serial)
			}
		}
	}
	if !found {
		return errors.New("it has none")
	}
	return nil
}
