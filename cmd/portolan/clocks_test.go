package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
)

// doAt runs a command line on a machine whose clock is off.
func doAt(t *testing.T, off time.Duration, args ...string) clitest.Outcome {
	t.Helper()
	return line.DoAs(t, "", func(e *cli.Environment) { e.Now = func() time.Time { return time.Now().Add(off) } }, args...)
}

// TestAClockThatIsOffIsTold: if two clocks are ten minutes apart, the command says which one
// is ahead. An expired certificate is a different error.
func TestAClockThatIsOffIsTold(t *testing.T) {
	t.Parallel()
	signer := securetest.New(t, "an authority")
	own := signer.Write(t, t.TempDir(), signer.Issue(t, securetest.Leaf{}))
	server, log, _ := serveIn(t, t.TempDir(), "--secure-xds-address", "127.0.0.1:0", "--client-ca", own.CA)
	https := strings.Replace(server, "http:", "https:", 1)
	root := do(t, "", "ca", "root", "--server", server)
	roots := clitest.Write(t, map[string]string{"roots.pem": root.Out}) + "/roots.pem"
	now := time.Now()
	for name, c := range map[string]struct {
		off         time.Duration // error of the machine's clock
		from, until time.Time
		says        []string
		not         string
	}{
		"the server is ahead": {
			off: -10 * time.Minute, from: now.Add(-time.Hour), until: now.Add(-5 * time.Minute),
			says: []string{"the clock of the server is ", "ahead of that of this machine", "set the one that is wrong"}, not: "the certificate expired at",
		},
		"the server is behind": {
			off: 10 * time.Minute, from: now.Add(5 * time.Minute), until: now.Add(time.Hour),
			says: []string{"the clock of the server is ", "behind that of this machine", "set the one that is wrong"}, not: "the certificate expired at",
		},
		"it has expired": {
			from: now.Add(-time.Hour), until: now.Add(-5 * time.Minute),
			says: []string{"the certificate expired at", "get another with a token"}, not: "the clock of the server",
		},
	} {
		dir := t.TempDir()
		pair := signer.Issue(t, securetest.Leaf{Identity: "spiffe://cluster.local/ns/shop/sa/web", From: c.from, Until: c.until})
		hold(t, dir, map[string][]byte{enroll.ChainFile: pair.Cert, enroll.KeyFile: pair.Key, enroll.RootsFile: []byte(root.Out)})
		o := doAt(t, c.off, "certificate", "renew", "--out", dir, "--server", https)
		for _, words := range c.says {
			if o.Code == exit.OK || !strings.Contains(o.Err, words) {
				t.Errorf("%s: want %q: %+v", name, words, o)
			}
		}
		if strings.Contains(o.Err, c.not) {
			t.Errorf("%s: %q is not so: %+v", name, c.not, o)
		}
		as := []string{"--cert", filepath.Join(dir, enroll.ChainFile), "--key", filepath.Join(dir, enroll.KeyFile), "--ca", roots}
		if o := do(t, "", append([]string{"get", "vs", "--server", https}, as...)...); o.Code != exit.Unreachable {
			t.Errorf("%s: the certificate is good for more than its renewal: %+v", name, o)
		}
	}
	for _, words := range []string{"expired at", "is not valid before", "a clock is off by "} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("the server does not log %q:\n%s", words, log)
		}
	}

	// A machine with a wrong clock gets its certificates all the same, with a warning.
	token := clitest.Write(t, map[string]string{"token": do(t, "", "token", "create", "-n", "shop", "--service-account", "web", "--server", server).Out}) + "/token"
	dir := filepath.Join(t.TempDir(), "web")
	for _, args := range [][]string{{"request", "--token-file", token, "--ca", roots}, {"renew"}} {
		o := doAt(t, 10*time.Minute, append([]string{"certificate", args[0], "--ttl", "5m", "--out", dir, "--server", https}, args[1:]...)...)
		if o.Code != exit.OK || !strings.Contains(o.Err, "is not valid by the clock of this machine, which is ahead of that of the server by 5m") {
			t.Errorf("%s ten minutes ahead: %+v", args[0], o)
		}
	}
	// A minute of difference does not matter: certificates are backdated.
	if o := doAt(t, -time.Minute, "certificate", "renew", "--out", dir, "--server", https); o.Code != exit.OK || o.Err != "" {
		t.Errorf("a minute behind: %+v", o)
	}
}

// hold creates a directory in the form of package enroll.
func hold(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	const version = "..certificate-0"
	err := os.Mkdir(filepath.Join(dir, version), 0o700)
	if err == nil {
		err = os.Symlink(version, filepath.Join(dir, "..data"))
	}
	for name, content := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, version, name), content, 0o600)
		}
		if err == nil {
			err = os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
