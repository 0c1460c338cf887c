package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/storage"
)

// TestAgentRegisters: a machine that was invited into a WorkloadGroup is registered while its agent
// runs, as the service account of the group. To join again is to do so once, and nothing
// keeps the token. An invitation without a group changes nothing. At the end of the agent the machine is gone at once.
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
	text := m.invitation(m.api, m.secureXDS, "--group", "web", "--uses", "2")
	join := func() (o outcome, file string) {
		t.Helper()
		if o = m.join(text); o.code != 0 || !strings.Contains(o.stdout, "This machine is "+webIdentity) {
			t.Fatalf("join: %+v", o)
		}
		content, err := os.ReadFile(filepath.Join(m.dir, "config.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return o, string(content)
	}
	_, first := join()
	in, err := invitation.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	token, _ := invitation.Unpin(in.Token)
	for where, content := range filesBelow(t, m.dir, "") {
		if bytes.Contains(content, []byte(token)) {
			t.Errorf("%s has the token of the invitation", where)
		}
	}
	m.run()
	t.Logf("registered %v after the agent was started", m.awaitEntry("10.0.0.9", true).Round(time.Millisecond))
	m.awaitCall("the first request")

	// The same command again changes nothing but the certificate.
	was, before := m.entryOf("10.0.0.9"), time.Now()
	o, second := join()
	if second != first || !strings.Contains(o.stdout, "The running agent has the new certificate") {
		t.Errorf("joined again: %+v, and the file was\n%s, and is\n%s", o, first, second)
	}
	eventually(t, "the agent has the new certificate", func() error {
		now, err := m.status()
		if err == nil && now.Certificate.Renewed.Before(before.Truncate(time.Second)) {
			err = fmt.Errorf("it is of %s", now.Certificate.Renewed)
		}
		return err
	})
	m.awaitCall("a request after the second join")
	other := m.join(m.invite())
	if content, err := os.ReadFile(filepath.Join(m.dir, "config.yaml")); err != nil || string(content) != first || other.code != 65 ||
		!strings.Contains(other.stderr, "the machine is shop/web, in the group web, and the invitation is for shop/web, in no group") || !strings.Contains(other.stderr, "--replace") {
		t.Errorf("an invitation without a group: %+v, %v, and the file is\n%s", other, err, content)
	}
	if now := m.entryOf("10.0.0.9"); now == nil || was == nil || now.Metadata.UID != was.Metadata.UID {
		t.Errorf("the entry was %+v, and is %+v", was, now)
	}
	if o := m.join(m.invite(), "--replace"); o.code != 0 || !strings.Contains(o.stdout, "It was shop/web, in the group web, and is now shop/web, in no group.") || !strings.Contains(o.stdout, "goes on as shop/web, in the group web until it is started again") {
		t.Errorf("an invitation without a group, with --replace: %+v", o)
	}
	if err := m.process.terminate(t); err != nil {
		t.Error(err)
	}
	took := m.awaitEntry("10.0.0.9", false)
	t.Logf("gone %v after the agent had ended", took.Round(time.Millisecond))
	if took > storage.DefaultLease/5 {
		t.Errorf("the entry was there for %v after the agent", took)
	}
}
