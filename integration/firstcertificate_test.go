package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestAMachineJoins: a server without certificates from an operator makes its own authority. A
// machine gets a certificate with a join token and renews it by itself. Its Envoy connects with
// it, until the identity is revoked. A restart keeps the root.
func TestAMachineJoins(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0"}})
	secureXDS := announcedSecure.FindStringSubmatch(s.process.output())[1]
	bundle := s.must("", "ca", "root")
	roots := write(t, "roots.pem", bundle)
	token := write(t, "web.token", s.must("", "token", "create", "-n", "shop", "--service-account", "web"))
	dir := filepath.Join(t.TempDir(), "web")
	machine := func(args ...string) outcome {
		return command(t, "", append([]string{"certificate"}, append(args, "--out", dir, "--server", "https://"+s.api, "--ca", roots)...)...)
	}

	if o := machine("renew"); o.code != 65 || !strings.Contains(o.stderr, "portolan certificate request") {
		t.Errorf("nothing is there to renew: %+v", o)
	}
	if o := machine("request"); o.code != 64 || !strings.Contains(o.stderr, "--token-file") {
		t.Errorf("nothing says who it is: %+v", o)
	}
	if o := machine("request", "--token-file", token, "--ttl", "20s"); o.code != 0 || !strings.Contains(o.stdout, "has the certificate of "+webIdentity) {
		t.Fatalf("the first certificate: %+v", o)
	}
	if o := machine("request", "--token-file", token); o.code == 0 || !strings.Contains(o.stderr, "used up") {
		t.Errorf("the token is used again: %+v", o)
	}
	first, err := enroll.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	watch := start(t, "watch", binary, "certificate", "request", "--watch", "--ttl", "20s", "--out", dir, "--server", "https://"+s.api, "--ca", roots, "--token-file", token)

	s.apply(plainEntry("first"))
	files := securetest.Files{Dir: dir, Cert: filepath.Join(dir, enroll.ChainFile), Key: filepath.Join(dir, enroll.KeyFile), CA: filepath.Join(dir, enroll.RootsFile)}
	web := s.startEnvoy(envoyOptions{kind: "sidecar", name: "web", xds: secureXDS, variant: protocol.Delta, tls: &files})
	web.awaitCluster("outbound|80||first.shop.example", true)
	eventually(t, "the certificate is renewed", func() error {
		now, err := enroll.Read(dir)
		if err == nil && now.Pair.Leaf.Equal(first.Pair.Leaf) {
			err = fmt.Errorf("it is the first one\n%s", watch.output())
		}
		return err
	})
	s.apply(plainEntry("second"))
	web.awaitCluster("outbound|80||second.shop.example", true)
	web.expectNothingRejected()

	s.apply(`
apiVersion: portolan.io/v1
kind: RevokedIdentity
metadata: {name: web, namespace: shop}
spec: {serviceAccount: web, reason: the machine was stolen}
`)
	if o := machine("renew"); o.code == 0 || !strings.Contains(o.stderr, "is revoked") {
		t.Errorf("a revoked identity is renewed: %+v", o)
	}
	s.launchEnvoy(envoyOptions{kind: "sidecar", name: "thief", xds: secureXDS, variant: protocol.Delta, tls: &files})
	eventually(t, "a revoked identity is refused", func() error {
		if !strings.Contains(s.process.output(), "is revoked") {
			return errors.New("it is not")
		}
		return nil
	})

	s.kill()
	s.start()
	if again := s.must("", "ca", "root"); again != bundle {
		t.Errorf("after a restart the roots are %q, and were %q", again, bundle)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
