package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestWhoSpeaksForAHost: an editor of one namespace writes a ServiceEntry and a VirtualService
// for the host of a service in another. Without --require-host-consent the other namespace's
// own proxies follow them, and the objects say so. With it the write is refused, until the
// other namespace consents.
func TestWhoSpeaksForAHost(t *testing.T) {
	t.Parallel()
	x, theirs := newShop(t), startUpstream(t, "theirs")
	const forged = "away.attic.test"
	documents := strings.ReplaceAll(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: seized, namespace: attic}
spec: {hosts: [$host, $away], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: %d, name: http, protocol: HTTP}], endpoints: [{address: 127.0.0.1, ports: {http: %d}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: mine, namespace: attic}
spec: {hosts: [$host], http: [{route: [{destination: {host: $away}}]}]}
`, x.service, theirs.port), "$host", shopHost)
	documents = strings.ReplaceAll(documents, "$away", forged)
	const grant = `
apiVersion: portolan.io/v1
kind: HostGrant
metadata: {name: attic, namespace: shop}
spec:
  from: [{kind: ServiceEntry, namespace: attic}, {kind: VirtualService, namespace: attic}]
  to: [{hosts: [` + shopHost + `]}]
`
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprint("asks ", asks), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, serverOptions{args: []string{fmt.Sprint("--require-host-consent=", asks)}})
			s.must("", "user", "create", "alice", "--role", "admin")
			token := func(name, namespace string) string {
				return strings.TrimSpace(s.must("", "user", "create", name, "--role", "editor", "-n", namespace))
			}
			eve, bob := token("eve", "attic"), token("bob", "shop")
			own := *x
			own.service = freePort(t)
			mine := strings.ReplaceAll(documents, fmt.Sprint("number: ", x.service), fmt.Sprint("number: ", own.service))
			s.must(own.entry(own.v1), "apply", "-f", "-", "--token", bob)
			e := s.launchEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
			awaitReply(t, own.atSidecar("/"), "v1")
			if asks {
				for _, line := range []string{"apply -f -", "apply -f - --dry-run=server"} {
					out := s.try(mine, append(strings.Fields(line), "--token", eve)...)
					for _, want := range []string{
						"serviceentry/attic/seized: spec.hosts[0]: " + shopHost + " is a host of namespace shop (serviceentry/shop/reviews)",
						"virtualservice/attic/mine: spec.hosts[0]", "have a HostGrant in that namespace name VirtualService, namespace attic", "with the host in its hosts",
					} {
						if !strings.Contains(out.stderr, want) || out.code != 77 {
							t.Errorf("%s: exit code %d, lacks %q: %s", line, out.code, want, out.stderr)
						}
					}
				}
				if out := s.must("", "get", "serviceentries,virtualservices", "-n", "attic", "-o", "name"); strings.TrimSpace(out) != "" {
					t.Errorf("something was written: %s", out)
				}
				awaitReply(t, own.atSidecar("/"), "v1")
				if out := s.try(strings.ReplaceAll(grant, "namespace: shop", "namespace: attic"), "apply", "-f", "-", "--token", bob); out.code != 77 {
					t.Errorf("an editor of shop consents for attic: %d %s", out.code, out.stderr)
				}
				s.must(grant, "apply", "-f", "-", "--token", bob)
			}
			applied := s.try(mine, "apply", "-f", "-", "--token", eve)
			if applied.code != 0 || strings.Contains(applied.stderr, "PTL0138") == asks {
				t.Fatalf("apply: exit code %d: %s", applied.code, applied.stderr)
			}
			awaitReply(t, own.atSidecar("/"), "theirs")
			for _, object := range []string{"virtualservice/mine", "serviceentry/seized"} {
				eventually(t, object+" tells of the crossing, if nobody consents", func() error {
					shown := s.must("", "describe", object, "-n", "attic")
					if told := strings.Contains(shown, "PTL0138") && strings.Contains(shown, "a host of namespace shop (serviceentry/shop/reviews)"); told == asks {
						return fmt.Errorf("%s", shown)
					}
					return nil
				})
			}
			if !asks {
				switchedOn(t, s, &own, grant, mine, bob)
			}
			e.expectNothingRejected()
		})
	}
}

// switchedOn restarts a server with --require-host-consent. The objects of attic that are stored
// have no effect for the host of shop until shop consents, or somebody with the right applies
// them.
func switchedOn(t *testing.T, s *server, x *shop, grant, mine, bob string) {
	t.Helper()
	s.kill()
	s.o.args = []string{"--require-host-consent"}
	s.start()
	expect := func(what, reply string, told bool) {
		t.Helper()
		awaitReply(t, x.atSidecar("/"), reply)
		for _, object := range []string{"virtualservice/mine", "serviceentry/seized"} {
			eventually(t, what+": "+object+" tells whether it has effect", func() error {
				shown := s.must("", "describe", object, "-n", "attic")
				if strings.Contains(shown, "PTL0139") != told || strings.Contains(shown, "PTL0138") {
					return fmt.Errorf("%s", shown)
				}
				return nil
			})
		}
	}
	expect("switched on", "v1", true)
	s.must(grant, "apply", "-f", "-", "--token", bob)
	expect("consent", "theirs", false)
	withdraw := []string{"delete", "hostgrant/attic", "-n", "shop", "--token", bob}
	if out := s.try("", withdraw...); out.code == 0 || !strings.Contains(out.stderr, "virtualservice/attic/mine: spec.hosts[0]") || !strings.Contains(out.stderr, "PTL0139") {
		t.Errorf("the delete does not say what loses its effect: %d %s", out.code, out.stderr)
	}
	s.must("", append(withdraw, "--yes")...)
	expect("consent withdrawn", "v1", true)
	s.must(mine, "apply", "-f", "-")
	expect("applied by somebody with the right", "theirs", false)
}

// TestLoopbackProvesNothing: with the first user the plaintext port of the machine gives no
// secrets, and believes no labels of gateways. A gateway over the socket has both. After the last user it
// is as before.
func TestLoopbackProvesNothing(t *testing.T) {
	t.Parallel()
	for _, trusts := range []bool{false, true} {
		t.Run(fmt.Sprint("trusts ", trusts), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "xds.sock")
			s, x := startServer(t, serverOptions{args: []string{"--xds-socket", path, fmt.Sprint("--trust-loopback-proxies=", trusts)}}), newShop(t)
			pair := secrettest.New(t, 24*time.Hour, "door.shop.test")
			s.apply(x.entry(x.v1), secureGateway(x.gateway, "door"), tlsSecret("door", pair))
			edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
			newTLSClient(x.gateway, "door.shop.test", pair).awaitCertificate(t, pair)

			s.must("", "user", "create", "alice", "--role", "admin")
			const doubted = "believing no labels of a gateway"
			if trusts {
				edge.process.kill()
				s.launchEnvoy(envoyOptions{kind: "router", name: "again", labels: "app=edge", variant: protocol.Delta})
				newTLSClient(x.gateway, "door.shop.test", pair).awaitCertificate(t, pair)
				if strings.Contains(s.process.output(), doubted) {
					t.Error("the gateway is doubted")
				}
				return
			}
			eventually(t, "the gateway connects anew and is doubted", func() error {
				if out := s.try("", "proxy", "config", "listener", "edge"); out.code != 0 || !strings.Contains(s.process.output(), doubted) || strings.Contains(out.stdout, fmt.Sprint(x.gateway)) {
					return fmt.Errorf("%s%s", out.stdout, out.stderr)
				}
				return nil
			})
			eventually(t, "nobody serves the door", func() error {
				if listening(local(x.gateway)) {
					return fmt.Errorf("somebody listens")
				}
				return nil
			})
			beside := s.launchEnvoy(envoyOptions{kind: "router", name: "beside", labels: "app=edge", variant: protocol.Delta, xds: path})
			newTLSClient(x.gateway, "door.shop.test", pair).awaitCertificate(t, pair)

			// Without any user the doubted gateway connects anew, and is believed.
			beside.process.kill()
			s.must("", "user", "delete", "alice")
			newTLSClient(x.gateway, "door.shop.test", pair).awaitCertificate(t, pair)
		})
	}
}
