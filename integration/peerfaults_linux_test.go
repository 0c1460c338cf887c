package integration

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyPeerFaults: whatever fails, what was encrypted is encrypted or does not go through, and
// who was refused is refused. One service is of the store, the other of a Consul.
func TestEnvoyPeerFaults(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerNetworks(t)
		etcd := startEtcdProcess(t)
		registry := startConsul(t, consulOptions{})
		registry.must(registry.Agent().ServiceRegister(&api.AgentServiceRegistration{
			ID: "app", Name: "app", Address: "10.0.0.1", Port: 8080,
			Meta: map[string]string{"protocol": "http", "portolan-port": "80", "portolan-tls-mode": "istio", "portolan-service-account": "app"},
		}))
		registry.must(registry.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "silent", Name: "silent", Address: "10.0.0.1", Port: 9999}))
		m.server = etcd.server("--consul-address", registry.url, "--consul-namespace", "shop", "--log-level", "debug")
		m.xds = startSocketRelay(t, m.server.xds)
		m.apply(peerEntry)
		app, client := identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"client")
		in, out := m.sidecars(v, app, client)
		m.must(peerMode("STRICT"), "apply", "-f", "-", "--wait")
		wire := m.client.sniff("p", secretWord)
		// holds waits until requests are answered, or not, and checks that nobody reads them.
		holds := func(fault string, answered bool) {
			t.Helper()
			for _, host := range []string{"app.shop.test", "app.service.consul"} {
				eventually(t, fault+": "+host, func() error {
					got, err := m.throughTo(host, 80, "/"+secretWord)
					mutual := strings.Contains(got.echo.Header.Get("X-Forwarded-Client-Cert"), "URI="+shopAccounts+"client")
					if err == nil && got.status == http.StatusOK && !mutual {
						t.Errorf("%s: a request in plaintext is answered", fault)
					}
					if answered != (err == nil && got.status == http.StatusOK) {
						return fmt.Errorf("it gets %s, %w", got, cmp.Or(err, errors.New("no error")))
					}
					return nil
				})
			}
			for _, port := range []int{81, 90} {
				if got, err := m.through(port, "/"+secretWord); answered != (err == nil && got.status == http.StatusOK) {
					t.Errorf("%s: port %d: %s, %v", fault, port, got, err)
				}
			}
			for _, port := range []int{8080, 5432, 7000} {
				if err := m.bare(port); err == nil {
					t.Errorf("%s: port %d takes plaintext", fault, port)
				}
			}
			if seen := wire.Load(); seen > 0 {
				t.Errorf("%s: %d packets have what was sent", fault, seen)
			}
		}
		restart := func(client *certificateFiles) {
			t.Helper()
			out.process.kill()
			out = m.sidecarOfClient(v, client)
		}
		m.awaitSaved(2)
		holds("all is well", true)
		eventually(t, "an endpoint of Consul does not tell of its sidecar", func() error {
			for _, command := range [][]string{{"describe", "service", "silent.service.consul"}, {"analyze"}} {
				if out := m.must("", command...); !strings.Contains(out, "[PTL0364]") {
					return fmt.Errorf("%v: %s", command, out)
				}
			}
			return nil
		})
		etcd.process.Kill()
		holds("the store is away", true)
		restart(client)
		holds("a client starts without the store", true)
		m.kill()
		holds("the server is away", true)
		etcd.start()
		m.start()
		holds("both are back", true)

		registry.process.kill()
		holds("the registry is away", true)
		m.kill()
		m.start()
		restart(client)
		holds("server and client start without the registry", true)

		in.process.kill()
		in = m.sidecarOfApp(v, identified(t, securetest.New(t, "new root"), shopAccounts+"app"))
		holds("the root is rotated half way", false)
		in.process.kill()
		in = m.sidecarOfApp(v, app)
		holds("the former root is back", true)

		gone := *client
		gone.chain += ".gone"
		out.process.kill()
		out = m.launchEnvoy(m.clientOptions(v, &gone))
		out.awaitReady()
		holds("a client's certificate is gone", false)
		restart(client)
		holds("it has one again", true)
		in.expectNothingRejected()
		out.expectNothingRejected()
	})
}
