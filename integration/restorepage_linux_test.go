package integration

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// storeMachine is one machine of a store: a network with an address, and directories that stand for
// those of the pages.
type storeMachine struct {
	*shell
	settings string // the file of its server
	server   *process
}

// unit is the command line of a server in the unit of the package.
const unit = "portolan serve --config /etc/portolan/serve.yaml"

// newMachines returns three machines, 10.0.0.1 to 10.0.0.3, whose servers have the unit of
// the package, with the settings of docs/tasks/run-in-production.md.
func newMachines(t *testing.T) []*storeMachine {
	t.Helper()
	page, err := os.ReadFile("../docs/tasks/run-in-production.md")
	if err != nil {
		t.Fatal(err)
	}
	service, err := os.ReadFile("../.ci/dist/files/portolan/portolan.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := regexp.MustCompile(`\n\n((?:       [a-z-]+: .*\n)+)`).FindSubmatch(page)
	if settings == nil || !bytes.Contains(service, []byte("ExecStart=/usr/bin/"+unit+"\n")) ||
		!bytes.Contains(page, []byte("`join: https://mesh.example.com:15080` and `token-file: /etc/portolan/member.token`")) {
		t.Fatal("the unit is another, or the page has no settings, or not those of the other servers")
	}
	first := newShell(t)
	var out []*storeMachine
	const joins = "join: https://10.0.0.1:15080\ntoken-file: /etc/portolan/member.token\n"
	for i, own := range []string{"store-name: cp-1\nstore-peer-url: https://10.0.0.1:2380\n", joins, joins} {
		s := first
		if i > 0 {
			s = &shell{t: t, n: newNamespace(t, "machine"), env: first.env}
			t.Cleanup(s.end)
		}
		s.tmp, s.dir = t.TempDir(), t.TempDir()
		m := &storeMachine{shell: s, settings: strings.ReplaceAll(string(settings[1]), "       ", "") + own}
		m.furnish()
		m.do("(umask 077; openssl rand -hex 32 > /etc/portolan/backup.key)")
		out = append(out, m)
	}
	joinNetworks(t, out)
	return out
}

// joinNetworks connects the machines by a bridge in the network of the first.
func joinNetworks(t *testing.T, machines []*storeMachine) {
	t.Helper()
	hub := machines[0].n
	hub.ip("link", "add", "hub", "address", "02:00:00:00:77:02", "type", "bridge")
	hub.ip("addr", "add", "10.0.0.1/24", "dev", "hub")
	hub.ip("link", "set", "hub", "up")
	for i, m := range machines[1:] {
		port := "port" + string(rune('1'+i))
		hub.ip("link", "add", port, "type", "veth", "peer", "name", "wire", "netns", m.n.name)
		hub.ip("link", "set", port, "master", "hub", "up")
		m.n.ip("addr", "add", "10.0.0."+string(rune('2'+i))+"/24", "dev", "wire")
		m.n.ip("link", "set", "wire", "up")
	}
}

// here replaces the directories of the pages by those of the machine.
func (m *storeMachine) here(command string) string {
	for _, dir := range []string{"/var/lib/portolan", "/etc/portolan"} {
		command = strings.ReplaceAll(command, dir, m.tmp+dir)
	}
	return command
}

// do runs a command of a page on the machine. The test stands in for systemctl.
func (m *storeMachine) do(command string) string {
	m.t.Helper()
	switch command {
	case "systemctl start portolan":
		m.start(unit)
		return ""
	case "systemctl stop portolan":
		if err := m.server.terminate(m.t); err != nil {
			m.t.Fatal(err)
		}
		return ""
	}
	return m.command(m.here(command))
}

// start runs a server until it is ready.
func (m *storeMachine) start(unit string) {
	m.t.Helper()
	m.launch(unit)
	m.awaitReady()
}

// launch runs a server.
func (m *storeMachine) launch(unit string) {
	m.t.Helper()
	in := m.n.command()
	m.server = &process{processtest.Start(m.t, processtest.Options{
		Name: "portolan", Path: in[0], Args: append(in[1:], "bash", "-c", "cd '"+m.dir+"' && exec "+m.here(unit)), Env: m.env,
	}), "portolan"}
}

// awaitReady waits until the server says that it is ready.
func (m *storeMachine) awaitReady() {
	m.t.Helper()
	eventually(m.t, "the server is ready", func() error {
		if !m.server.running() {
			m.t.Fatalf("the server has ended: %s", m.server.tail())
		}
		if !strings.Contains(m.server.output(), "msg=ready") {
			return errors.New("it has not said so")
		}
		return nil
	})
}

// lose ends the server as a power failure does, and removes all that the machine had.
func (m *storeMachine) lose() {
	m.t.Helper()
	m.server.kill()
	m.end() // its store process as well
	m.furnish()
}

// furnish gives the machine empty directories, and the settings of its server.
func (m *storeMachine) furnish() {
	m.t.Helper()
	for _, dir := range []string{"/var/lib/portolan", "/etc/portolan"} {
		if err := os.RemoveAll(m.here(dir)); err != nil {
			m.t.Fatal(err)
		}
		if err := os.MkdirAll(m.here(dir), 0o700); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := os.WriteFile(m.here("/etc/portolan/serve.yaml"), []byte(m.here(m.settings)), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// form forms the store as docs/operations/members.md and the production page say.
func form(t *testing.T, machines []*storeMachine) {
	t.Helper()
	first := machines[0]
	// The page ends the server that began the store with Ctrl-C.
	first.start("portolan serve --new-store --data-dir /var/lib/portolan/store")
	first.do("systemctl stop portolan")
	first.do("systemctl start portolan")
	for i, m := range machines[1:] {
		name, url := "cp-"+string(rune('2'+i)), "https://10.0.0."+string(rune('2'+i))+":2380"
		first.do("portolan store member invite " + name + " --peer-url " + url + " > " + name + ".token")
		m.admit(first, name)
	}
	first.awaitVoters(3)
}

// admit puts the token of a member into its place, and starts its server.
func (m *storeMachine) admit(first *storeMachine, name string) {
	m.t.Helper()
	token, err := os.ReadFile(filepath.Join(first.dir, name+".token"))
	if err == nil {
		err = os.WriteFile(m.here("/etc/portolan/member.token"), token, 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	key, err := os.ReadFile(first.here("/etc/portolan/backup.key"))
	if err == nil {
		err = os.WriteFile(m.here("/etc/portolan/backup.key"), key, 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.do("systemctl start portolan")
}

// awaitVoters waits until all members have a vote and answer.
func (m *storeMachine) awaitVoters(n int) {
	m.t.Helper()
	eventually(m.t, "all members have a vote", func() error {
		list, err := m.try("portolan store member list")
		if voters := strings.Count(list, "voter") + strings.Count(list, "leader"); err == nil && voters != n {
			err = errors.New(list)
		}
		return err
	})
}

// TestRestorePage runs the section on servers that joined of docs/operations/backup.md, as
// written, on three machines with the unit of the production page: after two of three were
// lost, and after all were. Each time the configuration, the root of the mesh and the secrets
// are back, and a former member stays outside.
func TestRestorePage(t *testing.T) {
	t.Parallel()
	needTools(t, "openssl")
	page, err := os.ReadFile("../docs/operations/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Restore servers that joined\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := machineFence.FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of commands: this test knows what 2 are for", len(blocks))
	}
	machines := newMachines(t)
	first := machines[0]
	form(t, machines)
	pair := secrettest.New(t, time.Hour, "edge.example")
	first.command("portolan apply -f - <<'EOF'\n" + entry("before", 80) + "---\n" + tlsSecret("edge", pair) + "\nEOF")
	root := first.command("portolan ca root")
	const web = " --server https://10.0.0.1:15080 --cert web/cert-chain.pem --key web/key.pem --ca web/root-cert.pem"
	first.command("portolan token create -n shop --service-account web > web.token")
	first.command("portolan token create -n shop --service-account web > unused.token")
	first.command("portolan certificate request --out web --server https://10.0.0.1:15080 --token-file web.token")
	save := func() {
		first.do("cp /etc/portolan/backup.key backup.key")
		first.do("portolan store backup --force mesh.backup --key-file backup.key")
		first.do("portolan export > mesh.yaml")
	}
	save()

	restore := func() {
		for _, command := range commands(t, blocks[0][1]) {
			out := first.do(strings.TrimSpace(command))
			if strings.HasPrefix(command, "portolan store restore ") && !strings.Contains(out, "portolan token revoke: shop/") {
				t.Errorf("the open token is not named: %s", out)
			}
		}
		first.do("cp backup.key /etc/portolan/backup.key")
		for i, m := range machines[1:] {
			m.admit(first, "cp-"+string(rune('2'+i)))
		}
		first.awaitVoters(3)
		if out := first.command("portolan auth whoami" + web); !strings.Contains(out, "spiffe://cluster.local/ns/shop/sa/web") {
			t.Errorf("with a certificate of before it is %s", out)
		}
		for _, m := range machines {
			if got := m.command("portolan ca root"); got != root {
				t.Error("the root of the mesh is another")
			}
			m.do("portolan export > now.yaml")
			m.command("diff " + filepath.Join(first.dir, "mesh.yaml") + " now.yaml")
			if out := m.command("portolan secret status"); strings.Contains(out, "cannot be opened") {
				t.Errorf("it lacks the sealing keys: %s", out)
			}
		}
	}

	// Two of three are lost: the third is stopped, and its data moved away.
	machines[1].lose()
	machines[2].lose()
	first.do("systemctl stop portolan")
	first.do("mv /var/lib/portolan/store /var/lib/portolan/former")
	first.do("cp /etc/portolan/backup.key backup.key")
	restore()

	// All are lost.
	for _, m := range machines {
		m.lose()
	}
	first.do("mkdir -p /etc/portolan && cp backup.key /etc/portolan/backup.key")
	restore()
}
