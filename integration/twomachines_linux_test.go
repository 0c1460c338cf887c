package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// twoMachines is the page with the commands from two empty machines to a first request.
const twoMachines = "../docs/tasks/two-machines.md"

// machineFence matches a block of commands on that page. TestTaskPages ignores these blocks.
var machineFence = regexp.MustCompile("(?s)```bash\n(.*?)```")

// TestTwoMachines runs the commands of docs/tasks/two-machines.md, at most ten, each on its
// machine, which is a network of its own. Apart from that, it only copies the tokens.
func TestTwoMachines(t *testing.T) {
	text, err := os.ReadFile(twoMachines)
	if err != nil {
		t.Fatal(err)
	}
	first := newShell(t)
	second := &shell{t: t, n: newNamespace(t, "second"), tmp: t.TempDir(), env: first.env}
	t.Cleanup(second.end)
	first.dir, second.dir = t.TempDir(), t.TempDir()
	first.n.ip("link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", second.n.name)
	for s, address := range map[*shell]string{first: "10.0.0.1/24", second: "10.0.0.2/24"} {
		s.n.ip("addr", "add", address, "dev", "wire")
		s.n.ip("link", "set", "wire", "up")
	}
	serveUpstream(t, "program", second.n.listen("127.0.0.1:8000"))

	machines := map[string]*shell{"On the first machine": first, "On the second machine": second, "A request": first}
	count, last := 0, ""
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		on := machines[title]
		if on == nil {
			t.Fatalf("%q is of no machine", title)
		}
		if on == second {
			for _, file := range []string{"alice.token", "web.token"} {
				carry(t, file, first, second)
			}
		}
		for _, block := range machineFence.FindAllStringSubmatch(section, -1) {
			for _, command := range commands(t, block[1]) {
				count++
				last = on.command(strings.TrimSpace(command))
			}
		}
	}
	if count > 10 {
		t.Errorf("the page has %d commands", count)
	}
	if !strings.Contains(last, "program") {
		t.Errorf("the request is answered %q", last)
	}
	if out := first.command("portolan explain request --from shop/edge-1 --to web.shop.example:8080"); !strings.Contains(out, "over mutual TLS of the mesh as outbound_.80_._.web.shop.example, to a server of spiffe://cluster.local/ns/shop/sa/web") {
		t.Errorf("the gateway does not encrypt:\n%s", out)
	}
	// Both proxies connect with the certificate of their machine.
	status := first.command("portolan proxy status")
	for _, name := range []string{"web-1", "edge-1"} {
		if !strings.Contains(status, name) {
			t.Errorf("%s is not connected:\n%s", name, status)
		}
	}
}

// carry copies a file from the directory of one machine to that of another.
func carry(t *testing.T, file string, from, to *shell) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(from.dir, file))
	if err == nil {
		err = os.WriteFile(filepath.Join(to.dir, file), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
