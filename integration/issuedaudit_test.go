package integration

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/authority/authoritytest"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
)

// TestIssuedIsInTheAudit: a certificate is in the history even if the server is killed as soon
// as it has issued it.
func TestIssuedIsInTheAudit(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0"}})
	for range 2 {
		token := strings.TrimSpace(s.must("", "token", "create", "-n", "shop", "--service-account", "web"))
		code, said := s.callerFrom(t, "127.0.0.1").certificate(token, string(authoritytest.CSR(t, authoritytest.Key(t))))
		s.kill()
		var issued certificate.Certificate
		if err := json.Unmarshal([]byte(said), &issued); code != 201 || err != nil || issued.Serial == "" {
			t.Fatalf("%d %s, %v", code, said, err)
		}
		s.start()
		if audit := s.must("", "audit"); !strings.Contains(audit, "serial "+issued.Serial) {
			t.Errorf("the audit lacks the certificate %s:\n%s", issued.Serial, audit)
		}
	}
}
