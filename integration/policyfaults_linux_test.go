package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyPolicyFaults: whatever fails, a policy judges on. A policy that Envoy rejects leaves the
// last good one in force and says so; a sidecar that starts meanwhile refuses all it cannot judge.
func TestEnvoyPolicyFaults(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerNetworks(t)
		database := startEtcdProcess(t)
		m.server = database.server()
		m.xds = startSocketRelay(t, m.server.xds)
		certificate := identified(t, m.of, shopAccounts+"app")
		good := authorization("admin", "{action: DENY, rules: [{to: [{operation: {paths: [/admin], ports: ['8080']}}, {operation: {ports: ['5432']}}]}]}")
		m.apply(peerEntry, good)
		// This Envoy takes no long regular expression.
		options := m.appOptions(v, certificate)
		options.runtime = "re2.max_program_size.error_level: 200"
		in := m.startEnvoy(options)
		in.awaitWarm()
		client := m.client.http(t)
		holds := func(fault, open, admin string) {
			t.Helper()
			for path, want := range map[string]string{"/open": open, "/admin": admin} {
				eventually(t, fault+": "+path, func() error {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://10.0.0.1:8080"+path, nil)
					if err != nil {
						return err
					}
					got, err := answer(client, r)
					if err == nil && got.String() == want {
						return nil
					}
					if path == "/admin" && err == nil && got.String() == "http" {
						t.Errorf("%s: %s is answered", fault, path)
					}
					return fmt.Errorf("%s, %v, want %s", got, err, want)
				})
			}
			if heard, err := m.heard(); err != nil || heard {
				t.Errorf("%s: the server of TCP hears: %t, %v", fault, heard, err)
			}
		}
		restart := func() {
			t.Helper()
			in.process.kill()
			in = m.startEnvoy(options)
		}
		holds("all is well", "http", "403")
		database.process.Kill()
		holds("the store is away", "http", "403")
		restart()
		holds("a sidecar starts without the store", "http", "403")
		m.kill()
		holds("the server is away", "http", "403")
		database.start()
		m.start()
		holds("both are back", "http", "403")
		m.awaitSynced(m.revision(), "app")

		const bad = "{action: DENY, rules: [{from: [{source: {notPrincipals: ['*/$long']}}]}]}"
		for _, when := range []string{"once", "again"} { // an Envoy acknowledges what it gets once more
			m.apply(authorization("admin", strings.Replace(bad, "$long", strings.Repeat("a", 500), 1)))
			m.awaitCondition("authorizationpolicies", "admin", "Rejected", "True", "app")
			holds("Envoy rejects the policy "+when, "http", "403")
			if when == "once" {
				m.apply(good)
				m.awaitCondition("authorizationpolicies", "admin", "Rejected", "", "")
			}
		}
		if out := m.must("", "describe", "authorizationpolicy", "admin", "-n", "shop"); !strings.Contains(out, "rejected") {
			t.Errorf("describe does not tell of the rejection:\n%s", out)
		}
		in.process.kill()
		in = m.launchEnvoy(options)
		holds("a sidecar starts, and has no policy that it takes", "403", "403")
		m.awaitCondition("authorizationpolicies", "admin", "Rejected", "True", "app")
		m.apply(good)
		m.awaitCondition("authorizationpolicies", "admin", "Rejected", "", "")
		holds("the policy is good again", "http", "403")
	})
}
