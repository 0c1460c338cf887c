package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// grpcPeers is a mesh of gRPC programs with certificates.
type grpcPeers struct {
	*server
	of *securetest.Authority
}

// with returns the flags of a bootstrap for a program with a certificate.
func (g *grpcPeers) with(identity string, flags ...string) []string {
	g.t.Helper()
	f := identified(g.t, g.of, identity)
	return append([]string{"--cert", f.chain, "--key", f.key, "--ca", f.roots}, flags...)
}

// startServer starts a gRPC server that the control plane configures.
func (g *grpcPeers) startServer(language, name string, flags ...string) *grpcBackend {
	g.t.Helper()
	env := g.grpcBootstrap(name, "127.0.0.1", g.xds, flags...)
	if language == "go" {
		return startGRPCBackend(g.t, name, env)
	}
	b := &grpcBackend{name: name, port: freePort(g.t)}
	o := processtest.Options{Name: "grpc-" + name, Env: []string{env}}
	switch language {
	case "python":
		o.Path, o.Args = needTool(g.t, grpcPython, "grpc-clients"), []string{"testdata/grpc/back.py", name, local(b.port)}
	case "js":
		o.Path, o.Args = needTool(g.t, grpcNode, "grpc-clients"), []string{"testdata/grpc/back.js", name, local(b.port)}
		o.Env = append(o.Env, "GRPC_XDS_EXPERIMENTAL_RBAC=true", "NODE_PATH="+needTool(g.t, grpcJS, "grpc-clients"))
	case "java":
		javaProgram(&o, "Back", name, local(b.port))
	}
	b.process = processtest.Start(g.t, o)
	return b
}

// grpcPeerEntry is the service with one endpoint, of the labels and the account given.
func grpcPeerEntry(port int, endpoint string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: grpc, protocol: GRPC}]
  endpoints: [{address: 127.0.0.1, ports: {grpc: $port}$more}]
`, "$port", port, "$more", endpoint)
}

const grpcTakesTLS = ", serviceAccount: reviews, labels: {security.istio.io/tlsMode: istio}"

// awaitPeer waits until the server that answers a call has seen an identity; it is empty for
// plaintext.
func awaitPeer(t testing.TB, what string, q request, want string) {
	t.Helper()
	client := clientOf(t)
	eventually(t, what, func() error {
		got, err := do(t.Context(), client, q)
		switch {
		case err != nil:
			return err
		case got.status != http.StatusOK:
			return fmt.Errorf("it answers %s: %s", got, strings.TrimSpace(got.body))
		case got.echo.Peer != want:
			return fmt.Errorf("the server saw %q, want %q", got.echo.Peer, want)
		}
		return nil
	})
}

// awaitRefused waits until a call fails, and an error has one of the texts.
func awaitRefused(t testing.TB, what string, q request, because ...string) {
	t.Helper()
	client := clientOf(t)
	eventually(t, what, func() error {
		got, err := do(t.Context(), client, q)
		if err != nil {
			return err
		}
		if got.status == http.StatusOK {
			return fmt.Errorf("%s answers, and saw %q", got, got.echo.Peer)
		}
		for _, text := range because {
			if strings.Contains(got.body, text) {
				return nil
			}
		}
		return fmt.Errorf("it fails for another reason: %s", strings.TrimSpace(got.body))
	})
}

// TestGRPCSecurity: gRPC clients and servers with certificates speak mutual TLS of the mesh, as
// the PeerAuthentication and the endpoints say.
func TestGRPCSecurity(t *testing.T) {
	t.Parallel()
	g := &grpcPeers{startServer(t, serverOptions{}), securetest.New(t, "authority")}
	const takesTLS = "security.istio.io/tlsMode=istio"
	languages := slices.Concat(grpcLanguages, guestLanguages(t))
	var clients []*grpcClient
	for i, language := range languages {
		clients = append(clients, g.startGRPCClient(language, fmt.Sprintf("10.0.1.%d", i+1), g.xds, g.with(shopAccounts+language)...))
	}
	bare := g.startGRPCClient("bare", "10.0.1.8", g.xds)
	foreign := g.startGRPCClient("foreign", "10.0.1.9", g.xds, g.with("spiffe://elsewhere.test/ns/shop/sa/web")...)
	of := g.of
	g.of = securetest.New(t, "other authority")
	rootless := g.startGRPCClient("rootless", "10.0.1.10", g.xds, g.with(shopAccounts+"go")...)
	g.of = of
	for _, language := range languages {
		t.Run("a server in "+language, func(t *testing.T) {
			b := g.startServer(language, "reviews", g.with(shopAccounts+"reviews", "--labels", takesTLS)...)
			others := g.startServer(language, "others", g.with(shopAccounts+"others")...)
			bareServer := g.startServer(language, "bare-"+language)
			each := func(step string, encrypted bool) {
				for _, c := range clients {
					want := ""
					if encrypted {
						want = shopAccounts + c.name
					}
					awaitPeer(t, step+": from "+c.name, c.call(anyMethod), want)
				}
			}
			refused := []string{"server preface: EOF", "connection reset", "server preface: remote error"}
			g.apply(grpcPeerEntry(b.port, grpcTakesTLS))
			each("a labelled endpoint", true)
			awaitRefused(t, "plaintext to a server that takes mutual TLS", bare.call(anyMethod), refused...)
			awaitRefused(t, "another trust domain", foreign.call(anyMethod), "did not match an allow policy", "Unauthorized RPC rejected", "Unauthorized by RBAC", "Access Denied")
			awaitRefused(t, "another root", rootless.call(anyMethod), "certificate signed by unknown authority")

			g.apply(peerMode("DISABLE"))
			each("DISABLE", false)
			awaitPeer(t, "DISABLE: from a client without a certificate", bare.call(anyMethod), "")
			g.apply(peerMode("STRICT"))
			each("STRICT", true)
			awaitRefused(t, "STRICT: plaintext", bare.call(anyMethod), refused...)

			g.apply(grpcPeerEntry(others.port, grpcTakesTLS)) // whose certificate is of another account
			for _, c := range clients {
				awaitRefused(t, "another account", c.call(anyMethod), "do not match any of the accepted SANs", "did not match SANs", "No matching subject alternative name", "Peer certificate SAN check failed")
			}
			g.apply(grpcPeerEntry(others.port, ", labels: {security.istio.io/tlsMode: istio}"))
			each("any account of the mesh", true)
			g.apply(grpcPeerEntry(bareServer.port, ", labels: {security.istio.io/tlsMode: disabled}"))
			awaitRefused(t, "STRICT: a server without a certificate", bare.call(anyMethod), refused...)

			g.remove(peerMode("STRICT"))
			each("a server without a certificate", false)
			g.apply(grpcPeerEntry(others.port, ", labels: {security.istio.io/tlsMode: disabled}"))
			each("an endpoint that takes plaintext", false)
		})
	}
	g.expectNothingRejected()
}

// TestGRPCSecurityWithSidecars: a gRPC client calls a sidecar, and a program with a sidecar calls a
// gRPC server, over mutual TLS of the mesh.
func TestGRPCSecurityWithSidecars(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		g := &grpcPeers{startServer(t, serverOptions{}), securetest.New(t, "authority")}
		app, inbound, outbound := startGRPCBackend(t, "app"), freePort(t), "unix://"+filepath.Join(t.TempDir(), "out")
		g.apply(sidecarOf(fill(`{workloadSelector: {labels: {app: app}}, ingress: [{bind: 127.0.0.1, port: {number: $in, protocol: GRPC, name: grpc}, defaultEndpoint: "127.0.0.1:$app"}]}`,
			"$in", inbound, "$app", app.port)),
			fill("apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: client, namespace: shop}\nspec: {workloadSelector: {labels: {app: client}}, egress: [{bind: \"$out\", port: {number: 0, protocol: GRPC, name: grpc}, hosts: [shop/*]}]}\n", "$out", outbound))
		g.startEnvoy(envoyOptions{kind: "sidecar", name: "app", labels: "app=app", variant: v, certificate: identified(t, g.of, shopAccounts+"reviews")})
		g.startEnvoy(envoyOptions{kind: "sidecar", name: "client", ip: "10.0.0.2", labels: "app=client", variant: v, certificate: identified(t, g.of, shopAccounts+"client")})
		server := g.startServer("go", "reviews", g.with(shopAccounts+"reviews", "--labels", "security.istio.io/tlsMode=istio")...)
		through := &grpcClient{"through", freePort(t)}
		processtest.Start(t, processtest.Options{Name: "through", Path: needGRPCPeer(t), Args: []string{"front", "--listen", local(through.port), "--through", outbound}})
		var clients []*grpcClient
		for i, language := range slices.Concat(grpcLanguages, guestLanguages(t)) {
			clients = append(clients, g.startGRPCClient(language, fmt.Sprintf("10.0.1.%d", i+1), g.xds, g.with(shopAccounts+language)...))
		}
		forwarded := func(c *grpcClient, want string) {
			t.Helper()
			client := clientOf(t)
			eventually(t, "the sidecar takes a call from "+c.name, func() error {
				got, err := do(t.Context(), client, c.call(anyMethod))
				if shown := got.echo.Header.Get("X-Forwarded-Client-Cert"); err == nil && (got.String() != "app" || !strings.Contains(shown, want) || want == "" && shown != "") {
					err = fmt.Errorf("%s answers, and saw %q: %s", got, shown, got.body)
				}
				return err
			})
		}
		for _, mode := range []string{"PERMISSIVE", "STRICT", "DISABLE"} {
			g.apply(peerMode(mode), grpcPeerEntry(inbound, grpcTakesTLS))
			for _, c := range clients {
				want := "URI=" + shopAccounts + c.name
				if mode == "DISABLE" {
					want = ""
				}
				forwarded(c, want)
			}
			g.apply(grpcPeerEntry(server.port, grpcTakesTLS))
			want := shopAccounts + "client"
			if mode == "DISABLE" {
				want = ""
			}
			awaitPeer(t, mode+": a gRPC server takes a call by a sidecar", through.call(anyMethod), want)
		}
		g.expectNothingRejected()
	})
}
