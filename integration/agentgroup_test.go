package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage"
)

// TestAgentRegisters: a machine that was invited into a WorkloadGroup is registered while its agent
// runs, as the service account of the group. At the end of the agent it is gone at once.
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
	if o := m.join(m.invitation(m.api, m.secureXDS, "--group", "web")); o.code != 0 || !strings.Contains(o.stdout, "This machine is "+webIdentity) {
		t.Fatalf("join: %+v", o)
	}
	m.run()
	t.Logf("registered %v after the agent was started", m.awaitEntry("10.0.0.9", true).Round(time.Millisecond))
	m.awaitCall("the first request")
	if err := m.process.terminate(t); err != nil {
		t.Error(err)
	}
	took := m.awaitEntry("10.0.0.9", false)
	t.Logf("gone %v after the agent had ended", took.Round(time.Millisecond))
	if took > storage.DefaultLease/5 {
		t.Errorf("the entry was there for %v after the agent", took)
	}
}
