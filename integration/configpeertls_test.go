package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
)

// peerIdentity is the identity of a server that imports the objects of another.
const peerIdentity = "spiffe://cluster.local/ns/istio-system/sa/peer"

// awaitSource waits until a source of a server has a number of objects, and a problem with some
// words. If problem is empty, there must be none.
func (s *server) awaitSource(name, problem string, objects int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the source %s has %d objects, and the problem %q", name, objects, problem), func() error {
		var sources serve.SourceList
		if _, err := s.get(serve.SourcesPath, &sources); err != nil {
			return err
		}
		i := slices.IndexFunc(sources.Items, func(of serve.SourceStatus) bool { return of.Name == name })
		if i < 0 {
			return fmt.Errorf("it is not among %+v", sources.Items)
		}
		of, n := sources.Items[i], 0
		for _, count := range of.Objects {
			n += count
		}
		if n != objects || (of.Problem == "") != (problem == "") || !strings.Contains(of.Problem, problem) {
			return fmt.Errorf("%+v", of)
		}
		return nil
	})
}

// TestConfigOfAnotherControlPlaneOverTLS: servers import the objects of another over TLS, one
// with its certificate and one with a token, exactly as long as a role lets them. Both ends
// report a refusal.
func TestConfigOfAnotherControlPlaneOverTLS(t *testing.T) {
	t.Parallel()
	hub := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0"}})
	secure := announcedSecure.FindStringSubmatch(hub.process.output())[1]
	ca := write(t, "roots.pem", hub.must("", "ca", "root"))
	dir := filepath.Join(t.TempDir(), "peer")
	token := write(t, "join", hub.must("", "token", "create", "-n", "istio-system", "--service-account", "peer"))
	hub.must("", "certificate", "request", "--out", dir, "--token-file", token)
	issuer := jwkstest.New(t)
	jwt := write(t, "jwt", issuer.Sign(t, map[string]any{"iss": issuer.URL, "aud": "portolan", "sub": "peer", "exp": time.Now().Add(time.Hour).Unix()}))
	hub.apply(plainEntry("first"), tokenIssuer("ci", issuer, forPortolan, subjectIs("peer", "istio-system")))

	source := func(address string, parameters ...string) []string {
		text := "xds://" + address
		if len(parameters) > 0 {
			text += "?" + strings.Join(parameters, "&")
		}
		return []string{"--config-source", text}
	}
	local := strings.Replace(secure, "127.0.0.1", "localhost", 1)
	follower := func(sources []string) *server {
		f := &server{t: t, o: serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: sources}, api: "127.0.0.1:0", xds: "127.0.0.1:0", client: clientOf(t)}
		f.launch()
		return f
	}
	byCertificate := follower(slices.Concat(
		source(secure, "ca="+ca, "cert="+filepath.Join(dir, "cert-chain.pem"), "key="+filepath.Join(dir, "key.pem")),
		source(local, "ca="+ca),
		source(hub.xds, "ca="+ca),
	))
	byToken := follower(slices.Concat(
		source(secure, "ca="+ca, "token="+jwt, "variant=sotw"),
		source(local),
	))
	byCertificate.awaitReady() // servers wait some seconds for their peers: both at the same time
	byToken.awaitReady()
	name, other := "xds://"+secure, "xds://"+local
	const mayNot = "PermissionDenied: " + peerIdentity + ` may not read the objects of the mesh (GENERATOR: api): user "` + peerIdentity + `" may not list `
	byCertificate.awaitSource(name, mayNot, 0)
	byToken.awaitSource(name, mayNot, 0)
	byCertificate.awaitSource(other, "Unauthenticated: this port serves clients that show who they are", 0)
	byToken.awaitSource(other, "over TLS alone", 0)
	byCertificate.awaitSource("xds://"+hub.xds, "TLS", 0)
	if out := hub.must("", "proxy", "status"); !strings.Contains(out, "may not read the objects of the mesh") {
		t.Errorf("what the hub shows: %s", out)
	}

	binding := fill(`
apiVersion: portolan.io/v1
kind: RoleBinding
metadata: {name: peers, namespace: istio-system}
spec:
  role: viewer
  subjects: [{kind: User, name: "$peer"}]
`, "$peer", peerIdentity)
	hub.apply(binding)
	byCertificate.awaitSource(name, "", 1)
	byToken.awaitSource(name, "", 1)
	hub.apply(plainEntry("second"))
	byCertificate.awaitSource(name, "", 2)
	byToken.awaitSource(name, "", 2)

	hub.remove(binding)
	byCertificate.awaitSource(name, "may not read the objects of the mesh", 2)
	byToken.awaitSource(name, "may not read the objects of the mesh", 2)
	if out := byToken.must("", "source", "list"); !strings.Contains(out, name) {
		t.Errorf("source list: %s", out)
	}
}
