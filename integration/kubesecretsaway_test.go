package integration

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestKubernetesSecretsAway: a server starts while the cluster of its secrets is away. Gateways that
// have a certificate of the cluster keep it, with what changes otherwise. A gateway that comes new gets
// what needs none. The server says what it has not read, and everything follows once the cluster is back.
func TestKubernetesSecretsAway(t *testing.T) {
	needEnvoy(t)
	needKubeAPIServer(t)
	k := &kubeCluster{t, startKubeAPIServer(t, kubeAPIServerBinary)}
	of := newAuthority(t, "authority")
	one, two := of.issue(time.Hour, "*.shop.test"), of.issue(2*time.Hour, "*.shop.test")
	const secrets = "/api/v1/namespaces/shop/secrets"
	k.must("POST", secrets, kubeSecret(t, "shop", one))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	k.api.kubeconfig(t, file, strings.TrimPrefix(k.api.url, "https://"))
	s := startServer(t, serverOptions{args: []string{"--secrets-kube", "east=" + file + "=shop"}})

	ports, plain := map[string]int{}, freePort(t)
	gateway := func(name string) string {
		ports[name] = freePort(t)
		return fill(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: $name, namespace: shop}
spec:
  selector: {app: $name}
  servers:
  - {port: {number: $port, name: https, protocol: HTTPS}, bind: 127.0.0.1, hosts: [door.shop.test], tls: {mode: SIMPLE, credentialName: door}}
  - {port: {number: $plain, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: [door.shop.test]}
`, "$name", name, "$port", ports[name], "$plain", plain)
	}
	says := func(body string) string {
		return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: door, namespace: shop}
spec:
  hosts: [door.shop.test]
  gateways: [delta, world, late]
  http: [{directResponse: {status: 200, body: {string: $body}}}]
`, "$body", body)
	}
	presents := func(name, body string, want secrettest.Pair) {
		t.Helper()
		eventually(t, name+" has the certificate", func() error {
			got, err := tlsCall{port: ports[name], name: "door.shop.test", of: of}.get(t.Context())
			if err == nil && (got.body != body || !got.leaf.Equal(want.Parsed)) {
				err = fmt.Errorf("it answers %q with a certificate until %s", got.body, got.leaf.NotAfter)
			}
			return err
		})
	}
	s.apply(gateway("delta"), gateway("world"), says("before"))
	s.startEnvoy(envoyOptions{kind: "router", name: "delta", labels: "app=delta", variant: protocol.Delta})
	s.startEnvoy(envoyOptions{kind: "router", name: "world", labels: "app=world", variant: protocol.StateOfTheWorld, ip: "10.0.0.2"})
	presents("delta", "before", one)
	presents("world", "before", one)

	k.api.process.Kill()
	if err := s.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.start()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the server is ready only after %s", took)
	}
	plain = freePort(t)
	s.apply(gateway("late"), says("after"))
	s.startEnvoy(envoyOptions{kind: "router", name: "late", labels: "app=late", variant: protocol.Delta, ip: "10.0.0.3"})
	awaitReply(t, request{port: plain, host: "door.shop.test"}, "200")
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", local(ports["late"])); err == nil {
		t.Errorf("a gateway without the certificate listens at %s", c.RemoteAddr())
		_ = c.Close()
	}
	presents("delta", "after", one)
	presents("world", "after", one)
	const unread = "none was read since this server started, gateways that have them keep them"
	for what, words := range map[string]string{
		"source describe secrets/east": unread, "describe gateway delta -n shop": "it is not known whether secret door exists",
	} {
		eventually(t, what+" says that nothing was read", func() error {
			if out := s.must("", strings.Fields(what)...); !strings.Contains(strings.Join(strings.Fields(out), " "), words) {
				return errors.New(out)
			}
			return nil
		})
	}
	if ready, err := s.get("/readyz?verbose", nil); err != nil || !strings.Contains(string(ready), "secrets of cluster east: "+unread) {
		t.Errorf("/readyz says %s (%v)", ready, err)
	}

	k.api.start(t)
	k.must("PUT", secrets+"/door", kubeSecret(t, "shop", two))
	for name := range ports {
		presents(name, "after", two)
	}
	s.expectNothingRejected()
}
