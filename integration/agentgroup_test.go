package integration

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage"
)

// TestAgentRegisters: a machine that was invited into a WorkloadGroup is registered while its agent
// runs, as the service account of the group.
func TestAgentRegisters(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.apply(`
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec: {metadata: {labels: {app: web}}, template: {serviceAccount: web}}
`)
	if got := m.try("", "machine", "invite", "-n", "shop", "--group", "web", "--service-account", "other", "--api-url", "https://"+m.api); got.code == 0 || !strings.Contains(got.stderr, "registers machines of the service account web") {
		t.Errorf("an invitation of another account: %+v", got)
	}
	line := strings.TrimSpace(m.must("", "machine", "invite", "-n", "shop", "--group", "web", "--api-url", "https://"+m.api, "--xds-address", m.secureXDS))
	if o := m.join(strings.TrimPrefix(line, "portolan-agent join ")); o.code != 0 || !strings.Contains(o.stdout, "This machine is "+webIdentity) {
		t.Fatalf("join: %+v", o)
	}
	m.run()
	m.awaitEntry("10.0.0.9", true)
	m.awaitCall("the first request")
	if err := m.process.terminate(t); err != nil {
		t.Error(err)
	}
	if took := m.awaitEntry("10.0.0.9", false); took > storage.DefaultLease+storage.DefaultLease/2 {
		t.Errorf("the entry was there for %v after the agent", took)
	}
}
