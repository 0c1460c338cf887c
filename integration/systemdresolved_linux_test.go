package integration

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// needResolved returns a directory with the package of the agent, and that of systemd-resolved where
// this machine has none. It is of the version of this machine's systemd.
func needResolved(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	output(t, "", "cp", distFile(t, needDist(t), "portolan-agent_*.deb"), dir)
	const program = "/lib/systemd/systemd-resolved"
	if _, err := os.Stat(program); err == nil {
		return dir
	}
	c := exec.CommandContext(t.Context(), "sh", "-euc", `apt-get download -q systemd-resolved="$(dpkg-query -W -f '${Version}' systemd)"`)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, AND NOTHING WAS TESTED: there is no %s, and its package cannot be had: %v: %s", program, err, out)
	}
	return dir
}

// TestSystemdResolvedAsksTheAgent: with capture systemd-resolved needs no change to answer names of
// the mesh. Without, both files of docs/tasks/answer-names.md do what the page says: for resolvers
// of links, and for those of all links.
func TestSystemdResolvedAsksTheAgent(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/tasks/answer-names.md")
	if err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile(`(?m)^    \[Resolve\]\n(    .*\n)+`).FindAllString(string(page), -1)
	if len(files) != 2 {
		t.Fatalf("the page has the files %q", files)
	}
	l := newLAN(t)
	needTools(t, "dbus-daemon") // for resolvectl
	b := l.boot("resolved", needResolved(t))
	l.apply(serviceAt("shop", "far.shop.example", "10.9.0.1", ""))
	l.resolver("printer.corp.test", "10.77.0.9")
	b.install("*.deb")
	b.must("ln", "-sf", "../run/systemd/resolve/stub-resolv.conf", "/etc/resolv.conf")
	b.must("systemctl", "restart", "systemd-resolved")
	b.must("resolvectl", "dns", "eth0", "10.77.0.1") // as NetworkManager sets it
	b.names("without an agent", "")

	b.must("portolan-agent", "join", l.invite("--service-account", "web"), "--interception", "REDIRECT")
	b.must("systemctl", "start", "portolan-agent")
	b.names("with capture", "10.9.0.1")
	b.must("portolan-agent", "leave")
	b.awaitShown("portolan-agent", "ActiveState", "inactive")

	b.must("portolan-agent", "join", l.invite("--service-account", "web"))
	b.must("sh", "-c", "echo 'dns: {}' >>/etc/portolan-agent/config.yaml")
	b.must("systemctl", "start", "portolan-agent")
	b.must("systemctl", "restart", "systemd-resolved") // which keeps what it was told
	b.names("without capture", "")
	const dropIn = "/etc/systemd/resolved.conf.d/portolan.conf"
	b.writes(dropIn, files[0])
	b.must("systemctl", "restart", "systemd-resolved")
	b.names("by the domains of the mesh", "10.9.0.1")

	b.must("resolvectl", "revert", "eth0")
	b.writes("/etc/systemd/resolved.conf.d/own.conf", "[Resolve]\nDNS=10.77.0.1\n")
	b.writes(dropIn, files[1])
	b.must("sed", "-i", "s/^dns: .*/dns: {resolvers: [10.77.0.1]}/", "/etc/portolan-agent/config.yaml")
	b.must("systemctl", "restart", "portolan-agent", "systemd-resolved")
	b.names("for all names", "10.9.0.1")
}

// writes writes a file on the machine, without the indent of a page.
func (b *booted) writes(file, text string) {
	b.t.Helper()
	text = strings.ReplaceAll("\n"+text, "\n    ", "\n")
	b.must("sh", "-euc", `mkdir -p "$(dirname "$0")"; printf %s "$1" >"$0"`, file, text)
}

// names: programs of the machine get an address for the host of the mesh, or none if that is empty,
// and that of the resolver for another name.
func (b *booted) names(what, ip string) {
	b.t.Helper()
	for _, name := range []struct{ host, ip string }{{"printer.corp.test", "10.77.0.9"}, {"far.shop.example", ip}} {
		eventually(b.t, what, func() error {
			got, err := b.program("getent", "ahostsv4", name.host)
			if first, _, _ := strings.Cut(got, " "); first != name.ip {
				return fmt.Errorf("%s is at %q, want %q: %w", name.host, first, name.ip, err)
			}
			return nil
		})
	}
}
