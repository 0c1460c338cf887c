package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// customProviders are authorizers at the client, which the sidecar of the workload asks.
const customProviders = `
extensionProviders:
- {name: grpc, envoyExtAuthzGrpc: {service: shop/ask.shop.test, port: 9000, timeout: 2s, statusOnError: "503"}}
- {name: http, envoyExtAuthzHttp: {service: ask.shop.test, port: 9001, timeout: 2s, statusOnError: "504"}}
- {name: grpc-open, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9000, timeout: 2s, failOpen: true}}
- {name: gone, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9002, timeout: 2s, statusOnError: "503"}}
- {name: open, envoyExtAuthzGrpc: {service: ask.shop.test, port: 9002, timeout: 2s, failOpen: true}}
- {name: unseen, envoyExtAuthzGrpc: {service: none.shop.test, port: 9002}}
`

const customEntry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ask, namespace: shop}
spec:
  hosts: [ask.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9000, name: grpc, protocol: GRPC}, {number: 9001, name: http, protocol: HTTP}, {number: 9002, name: grpc-gone, protocol: GRPC}]
  endpoints: [{address: 10.0.0.2}]
`

// asking is a policy that asks a provider about everything.
func asking(name, provider string) string {
	return authorization(name, "{action: CUSTOM, provider: {name: "+provider+"}, rules: [{}]}")
}

// TestEnvoyCustomPolicies: the sidecar asks the provider of a CUSTOM policy, at the next request of
// a kept connection, and refuses what it cannot ask about.
func TestEnvoyCustomPolicies(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerMesh(t, serverOptions{meshConfig: customProviders})
		(&authorizer{deniesRPC: true}).serve(t, m.client.listen("0.0.0.0:9000"), m.client.listen("0.0.0.0:9001"))
		m.apply(customEntry)
		in := m.sidecarOfApp(v, identified(t, m.of, shopAccounts+"app"))
		in.awaitWarm()
		kept := m.kept()
		before := in.listenersModified()
		for _, step := range []struct {
			name, documents, remove, want string
			tcp                           bool
		}{
			{"without a policy", "", "", "http", true},
			{"a provider over gRPC refuses", asking("a", "grpc"), "", "402", false},
			{"a second policy of the provider", asking("b", "grpc"), "", "402", false},
			{"two providers", asking("b", "http"), "", "403", false},
			{"one provider again", "", asking("b", "http"), "402", false},
			{"over HTTP, which knows no connections", asking("a", "http"), "", "http", true},
			{"a provider that is away", asking("a", "gone"), "", "503", false},
			{"a provider that is away, and may be", asking("a", "open"), "", "http", true},
			{"a provider without a service", asking("a", "unseen"), "", "403", false},
			{"an unknown provider", asking("a", "unknown"), "", "403", false},
			{"without any", "", asking("a", "unknown"), "http", true},
		} {
			if step.documents != "" {
				m.awaitSynced(m.apply(step.documents), "app")
			}
			if step.remove != "" {
				m.awaitSynced(m.remove(step.remove), "app")
			}
			if got, err := kept.status(8080); err != nil || got != step.want {
				t.Errorf("%s: %s, %v, want %s", step.name, got, err, step.want)
			}
			if heard, err := m.heard(); err != nil || heard != step.tcp {
				t.Errorf("%s: the server of TCP hears: %v, %v", step.name, heard, err)
			}
		}
		if again := in.listenersModified(); kept.opened != 1 || again != before {
			t.Errorf("%d connections, and %d listeners were changed", kept.opened, again-before)
		}
		m.expectNothingRejected()
		in.expectNothingRejected()
	})
}

// TestEnvoyCustomAtSidecar: a sidecar refuses while it does not see the provider, or while the
// authorizer is away, connections of TCP too, and lets them pass if the provider has failOpen.
func TestEnvoyCustomAtSidecar(t *testing.T) {
	const hides = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: app, namespace: shop}\nspec: {workloadSelector: {labels: {app: app}}, egress: [{hosts: [istio-system/*]}]}\n"
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerMesh(t, serverOptions{meshConfig: customProviders})
		asker := &authorizer{deniesRPC: true}
		start := func() func() {
			return asker.serve(t, m.client.listen("0.0.0.0:9000"), m.client.listen("0.0.0.0:9001"))
		}
		stop := start()
		m.apply(customEntry)
		in := m.sidecarOfApp(v, identified(t, m.of, shopAccounts+"app"))
		in.awaitWarm()
		kept := m.kept()
		expect := func(what, want string, tcp bool) {
			t.Helper()
			eventually(t, what+": "+want, func() error {
				got, err := kept.status(8080)
				if err == nil && got != want {
					err = fmt.Errorf("it answers %s", got)
				}
				return err
			})
			if heard, err := m.heard(); err != nil || heard != tcp {
				t.Errorf("%s: the server of TCP hears: %v, %v", what, heard, err)
			}
		}
		m.awaitSynced(m.apply(asking("a", "grpc")), "app")
		expect("asked", "402", false)
		m.awaitSynced(m.apply(hides), "app")
		expect("hidden by a Sidecar", "403", false)
		m.awaitIssue("authorizationpolicy", "a", "PTL0381", "is not seen by sidecar~10.0.0.1~app")
		m.awaitSynced(m.remove(hides), "app")
		expect("seen again", "402", false)
		m.awaitNoIssue("authorizationpolicy", "a", "PTL0381")

		stop()
		expect("away", "503", false)
		m.awaitSynced(m.apply(asking("a", "grpc-open")), "app")
		expect("away, and may be", "http", true)
		stop = start()
		expect("back", "402", false)
		m.awaitSynced(m.apply(asking("a", "http")), "app")
		expect("over HTTP", "http", true)
		stop()
		expect("over HTTP, away", "504", true)
		start()
		expect("over HTTP, back", "http", true)

		m.awaitSynced(m.apply(asking("a", "grpc"), authorization("deny", "{action: DENY, rules: [{}]}")), "app")
		_, before := asker.asked()
		expect("before DENY", "402", false)
		if _, after := asker.asked(); after == before {
			t.Error("before DENY: the authorizer was not asked")
		}
		in.expectNothingRejected()
	})
}

// TestEnvoyCustomOverMutualTLS: a sidecar speaks mutual TLS to an authorizer of the mesh, over gRPC
// and over HTTP, and shows it who asks. It trusts only the account of the authorizer.
func TestEnvoyCustomOverMutualTLS(t *testing.T) {
	t.Parallel()
	m := newPeerMesh(t, serverOptions{meshConfig: customProviders})
	var shown atomic.Value // who asked
	secure := func(port, speaks string) net.Listener {
		return tls.NewListener(m.client.listen("0.0.0.0:"+port), &tls.Config{
			Certificates: []tls.Certificate{*securetest.TLS(m.of.Issue(t, securetest.Leaf{Identity: shopAccounts + "ask"}))},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: m.of.Pool(), NextProtos: []string{speaks},
			VerifyConnection: func(s tls.ConnectionState) error {
				shown.Store(s.PeerCertificates[0].URIs[0].String())
				return nil
			},
		})
	}
	(&authorizer{}).serve(t, secure("9000", "h2"), secure("9001", "http/1.1"))
	entry := func(account string) string {
		return strings.Replace(customEntry, "{address: 10.0.0.2}", "{address: 10.0.0.2, serviceAccount: "+account+", labels: {security.istio.io/tlsMode: istio}}", 1)
	}
	m.apply(entry("ask"))
	in := m.sidecarOfApp(protocol.Delta, identified(t, m.of, shopAccounts+"app"))
	in.awaitWarm()
	expect := func(want string) {
		t.Helper()
		eventually(t, "a request gets "+want, func() error {
			got, err := m.kept().status(8080)
			if err == nil && got != want {
				err = fmt.Errorf("it gets %s", got)
			}
			return err
		})
	}
	for _, provider := range []string{"http", "grpc"} {
		shown.Store("nobody")
		m.awaitSynced(m.apply(asking("a", provider)), "app")
		expect("http")
		if got := shown.Load(); got != shopAccounts+"app" {
			t.Errorf("over %s: %s asked", provider, got)
		}
	}
	m.awaitSynced(m.apply(entry("other")), "app")
	expect("503")
	in.expectNothingRejected()
}
