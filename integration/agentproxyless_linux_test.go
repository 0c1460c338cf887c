package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/integration/processtest"
)

// grpcAt is a gRPC service at both addresses of a machine.
func grpcAt(m *lanMachine) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{number: 8080, name: grpc, protocol: GRPC}]
  endpoints:
  - {address: $ip4, serviceAccount: web, labels: {security.istio.io/tlsMode: istio}}
  - {address: "$ip6", serviceAccount: web, labels: {security.istio.io/tlsMode: istio}}
`, "$name", m.name, "$ip4", m.ips[0], "$ip6", m.ips[1])
}

// grpcProgram starts a gRPC program of the machine, as root or as the agent's user, with the bootstrap
// that the agent has made.
func (m *lanMachine) grpcProgram(command []string, args ...string) {
	m.t.Helper()
	processtest.Start(m.t, processtest.Options{
		Name: "grpc-" + m.name, Path: command[0], Args: append(append(command[1:], needGRPCPeer(m.t)), args...),
		Env: []string{"GRPC_XDS_BOOTSTRAP=" + filepath.Join(m.dir, "grpc.json")},
	})
}

// TestCapturedMachinesWithProxylessGRPC: gRPC programs without a proxy run beside sidecars. A program
// that serves by xDS ends TLS itself, at a port that is exempt; the sidecar ends it for a program that
// knows no xDS. A captured client's TLS goes through its sidecar unread. A client that runs as the
// agent's user passes by its sidecar. The addresses are of both families.
func TestCapturedMachinesWithProxylessGRPC(t *testing.T) {
	t.Parallel()
	l := newLANOf(t, bothFamilies)
	needTools(t, "curl")
	own, plain, captured, beside := l.machine("own"), l.machine("plain"), l.machine("captured"), l.machine("beside")
	l.apply(grpcAt(own), grpcAt(plain))
	for _, m := range []*lanMachine{own, plain, captured, beside} {
		account := map[bool]string{true: "web", false: m.name}[m == own || m == plain]
		m.join(l.invite("--service-account", account), "--interception", "REDIRECT", "--ip", "eth0")
		if m == own {
			m.change("capture: {}", "capture: {inbound: {exceptPorts: ['8080']}}")
		}
		m.run()
	}
	for _, m := range []*lanMachine{own, plain, captured, beside} {
		m.awaitStatus("the Envoy of "+m.name, func(s lanStatus) bool { return s.Envoy.PID != 0 && len(s.Clients) > 0 })
	}
	own.grpcProgram(own.command(), "serve", "--name", "own", "--listen", ":8080", "--xds")
	plain.grpcProgram(plain.command(), "serve", "--name", "plain", "--listen", ":8080")
	front := []string{"front", "--listen", "127.0.0.1:18080"}
	captured.grpcProgram(captured.command(), front...)
	beside.grpcProgram(asUser{beside.namespace, sidecarUser}.command(), front...)

	// calls has a client call a machine by each of its addresses, and waits until who the client is has
	// been seen there, by the program or by its sidecar; by neither if it is in plaintext.
	calls := func(what string, from, to *lanMachine, program, sidecar bool) {
		t.Helper()
		id := shopAccounts + from.name
		eventually(t, fmt.Sprintf("%s: %s calls %s", what, from.name, to.name), func() error {
			for range 4 {
				got, err := from.program("curl", "-sS", "--max-time", "5", "-H", "Host: "+to.name+".shop.test:8080", "http://127.0.0.1:18080"+anyMethod)
				if err != nil {
					return err
				}
				var e echo
				if err := json.Unmarshal([]byte(got), &e); err != nil {
					return fmt.Errorf("%w: %s", err, got)
				}
				shown := e.Header.Get("X-Forwarded-Client-Cert")
				if e.Upstream != to.name || (e.Peer == id) != program || strings.Contains(shown, "URI="+id) != sidecar {
					return fmt.Errorf("%s has seen %q, and its sidecar %q", e.Upstream, e.Peer, shown)
				}
			}
			return nil
		})
	}
	const passes = "cluster.PassthroughCluster;.upstream_cx_total"
	for _, mode := range []string{"PERMISSIVE", "STRICT"} {
		l.apply(peerMode(mode))
		for _, from := range []*lanMachine{captured, beside} {
			calls(mode, from, own, true, false)
			calls(mode, from, plain, false, true)
		}
	}
	if n := captured.counted(passes); n < 2 {
		t.Errorf("%d connections of the captured client went through its sidecar", n)
	}

	// Plaintext of a captured client is routed again by its sidecar.
	const routed = "cluster.outbound|8080||own.shop.test;.upstream_rq_total"
	before := captured.counted(routed)
	l.apply(peerMode("DISABLE"))
	calls("DISABLE", captured, own, false, false)
	calls("DISABLE", beside, own, false, false)
	if captured.counted(routed) == before {
		t.Error("the sidecar of the captured client has not routed its plaintext")
	}
	for _, name := range []string{passes, routed} {
		if n := beside.counted(name); n != 0 {
			t.Errorf("%s of the client that passes by its sidecar is %d", name, n)
		}
	}
	l.expectNothingRejected()
}
