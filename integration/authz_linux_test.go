package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// TestEnvoyAuthzCheck: what authz check says, what explain request says of the same hop, and what
// real Envoys do are the same, over mutual TLS and in plaintext.
func TestEnvoyAuthzCheck(t *testing.T) {
	t.Parallel()
	for mode, cases := range map[string][][]string{
		"PERMISSIVE": {
			{},
			{authorization("deny", "{action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}")},
			{authorization("nobody", "{}")},
			{authorization("client", "{rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]}"), authorization("deny", "{selector: {matchLabels: {app: app}}, action: DENY, rules: [{to: [{operation: {ports: ['8081']}}]}]}")},
			{authorization("other", "{rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/other]}}]}, {to: [{operation: {paths: ['/admin/*']}}]}]}")},
			{authorization("address", "{rules: [{from: [{source: {ipBlocks: [10.0.0.2/32]}}], to: [{operation: {ports: ['5432', '8080']}}]}]}")},
		},
		"DISABLE": {
			{authorization("unproved", "{action: DENY, rules: [{from: [{source: {notPrincipals: ['*']}}], to: [{operation: {ports: ['8080']}}]}]}")},
			{authorization("client", "{rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}, {to: [{operation: {paths: ['/admin/*']}}]}]}")},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			m := newPeerMesh(t, serverOptions{})
			// Without phases, so that no connection of an earlier one is kept.
			m.apply(strings.Replace(peerMode(mode), "namespace: shop}", "namespace: shop, annotations: {portolan.io/phase: none}}", 1))
			client := m.clientOptions(protocol.Delta, identified(t, m.of, shopAccounts+"client"))
			client.account = "client"
			in, out := m.sidecarOfApp(protocol.Delta, identified(t, m.of, shopAccounts+"app")), m.startEnvoy(client)
			in.awaitWarm()
			out.awaitWarm()
			counts := map[bool]int{}
			for _, policies := range cases {
				m.compareAuthz(t, policies, counts)
			}
			if counts[true] < 3 || counts[false] < 3 {
				t.Errorf("passed and refused are %v: the cases say little", counts)
			}
		})
	}
}

// compareAuthz compares the answers and what happens while some policies are applied. It counts the
// requests that pass, and those that do not.
func (m *peerMesh) compareAuthz(t *testing.T, policies []string, counts map[bool]int) {
	t.Helper()
	all := strings.Join(policies, "---\n")
	if len(policies) > 0 {
		m.awaitSynced(m.apply(policies...), "app", "client")
	}
	for _, q := range []struct {
		port int
		path string // empty for a connection of TCP
	}{{80, "/"}, {80, "/admin"}, {80, "/admin/x"}, {81, "/admin"}, {5432, ""}} {
		what := fmt.Sprintf("port %d, path %q, with\n%s", q.port, q.path, all)
		check, explained := m.checked(t, q.port, q.path), m.explainedAt(t, q.port, q.path)
		if check.Decision != explained.Decision || check.Reason != explained.Reason || check.Status != explained.Status {
			t.Errorf("%s\nauthz check says %+v, explain request %+v", what, check, explained)
		}
		passes := m.passes(q.port, q.path)
		if counts[passes]++; passes != (check.Decision == explain.Allowed) {
			t.Errorf("%s\nthe request passes is %t, and authz check says %+v", what, passes, check)
		}
	}
	if len(policies) > 0 {
		m.awaitSynced(m.remove(all), "app", "client")
	}
}

// checked returns what authz check says about a request of the client to the workload.
func (m *peerMesh) checked(t *testing.T, port int, path string) explain.Access {
	t.Helper()
	asked := m.try("", questionAbout("authz check", port, path)...)
	var out explain.AccessCheck
	if err := json.Unmarshal([]byte(asked.stdout), &out); err != nil || len(out.Destinations) != 1 || out.Destinations[0].Access == nil {
		t.Fatalf("%v: exit code %d: %s%s", err, asked.code, asked.stdout, asked.stderr)
	}
	if want := map[bool]int{true: 0, false: 1}[out.Outcome == explain.Forwarded]; asked.code != want {
		t.Errorf("exit code %d for the outcome %s", asked.code, out.Outcome)
	}
	return *out.Destinations[0].Access
}

// explainedAt returns what explain request says of the workload's sidecar.
func (m *peerMesh) explainedAt(t *testing.T, port int, path string) explain.Access {
	t.Helper()
	asked := m.must("", questionAbout("explain request", port, path)...)
	var out explain.Explanation
	err := json.Unmarshal([]byte(asked), &out)
	i := slices.IndexFunc(out.Destinations, func(d explain.Destination) bool { return len(d.Inbound) == 1 && d.Inbound[0].Access != nil })
	if err != nil || i < 0 {
		t.Fatalf("%v: no policies:\n%s", err, asked)
	}
	return *out.Destinations[i].Inbound[0].Access
}

// questionAbout returns the arguments of a question about a request of the client to the workload.
func questionAbout(command string, port int, path string) []string {
	out := append(strings.Fields(command), "--from", "client", "--to", fmt.Sprintf("app.shop.test:%d", port), "-o", "json")
	if path != "" {
		out = append(out, "--path", path)
	}
	return out
}

// passes reports whether a request of the client, or a connection, comes to the workload.
func (m *peerMesh) passes(port int, path string) bool {
	if path == "" {
		return m.echoes() == nil
	}
	got, err := m.through(port, path)
	return err == nil && got.status == 200
}

// echoes returns an error unless the workload sends back what the client writes on a connection of
// TCP. Its greeting comes before the policies: Envoy judges a connection by the client's first bytes.
func (m *peerMesh) echoes() error {
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	c, err := m.client.dial(ctx, "10.9.0.1:5432", captureMark)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("\x01hello\n")); err != nil {
		return err
	}
	lines := bufio.NewReader(c)
	for _, want := range []string{peerGreeting + "\n", "\x01hello\n"} {
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			return fmt.Errorf("%q, %w", got, err)
		}
	}
	return nil
}
