package integration

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMembersPage runs the commands of docs/operations/members.md as written, on three machines
// with nothing on them: a store formed by --join, a lost member replaced, and both again with
// certificates of the operator.
func TestMembersPage(t *testing.T) {
	t.Parallel()
	needTools(t, "openssl")
	text, err := os.ReadFile("../docs/operations/members.md")
	if err != nil {
		t.Fatal(err)
	}
	page := pageOf(t, string(text))
	machines := newMachines(t)
	first, third := machines[0], machines[2]

	// Form a store.
	form := page["Form a store"]
	first.start(form[0])
	for i, m := range machines[1:] {
		invite, join := form[1], form[2]
		if i == 1 { // the page shows the second server
			invite, join = forMember(invite, "2", "3"), forMember(join, "2", "3")
		}
		first.do(invite)
		name := "cp-" + string(rune('2'+i))
		carry(t, name+".token", first.shell, m.shell)
		m.start(join)
	}
	first.awaitVoters(3)

	// Replace a member whose machine is lost.
	replace := page["Replace a member whose machine or data is lost"]
	const flags = " --api-address 0.0.0.0:15080 --secure-xds-address 0.0.0.0:15012"
	third.loseAll()
	first.do(replace[0])
	first.do(replace[1])
	carry(t, "cp-3.token", first.shell, third.shell)
	rejoin, ok := strings.CutSuffix(withoutComment(replace[2]), " ...")
	if !ok {
		t.Fatalf("%s: the test adds the other flags of the server", replace[2])
	}
	third.start(rejoin + flags)
	first.awaitVoters(3)

	// With an authority of the operator, all begin at once.
	for _, m := range machines {
		m.loseAll()
	}
	own := page["Certificates"]
	first.do(own[0])
	for _, command := range own[1:4] {
		first.do(command)
		first.do(forMember(command, "1", "2"))
		first.do(forMember(command, "1", "3"))
	}
	begin := own[4] + flags
	for i, m := range machines {
		number := string(rune('1' + i))
		carry(t, "ca.pem", first.shell, m.shell)
		carry(t, "cp-"+number+".pem", first.shell, m.shell)
		carry(t, "cp-"+number+"-key.pem", first.shell, m.shell)
		m.launch(numbered(begin, number))
	}
	for _, m := range machines {
		m.awaitReady()
	}
	first.awaitVoters(3)
	handKeys(t, machines, withoutComment(own[5]), withoutComment(own[6]))

	// Replace one of them: the page says add, --store-join and promote.
	third.loseAll()
	for _, file := range []string{"ca.pem", "cp-3.pem", "cp-3-key.pem"} {
		carry(t, file, first.shell, third.shell)
	}
	first.do(replace[0])
	first.do(forMember(withoutComment(own[7]), "2", "3"))
	_, at, _ := strings.Cut(string(text), "use instead `store member add`, `")
	at, _, ok = strings.Cut(at, "`, and `store member promote`")
	if !ok {
		t.Fatal("the page does not say how to replace a member with certificates of yours")
	}
	store := third.here("/var/lib/portolan/store")
	third.command("mkdir -m 700 " + store + " && cp " + first.here("/var/lib/portolan/store/sealing.key") + " " + store)
	third.launch("portolan " + at + " --data-dir /var/lib/portolan/store --store-name cp-3 --store-peer-url https://10.0.0.3:2380 --store-cert cp-3.pem --store-key cp-3-key.pem --store-ca ca.pem" + flags)
	first.do(forMember(withoutComment(own[8]), "2", "3"))
	third.awaitReady()
	first.awaitVoters(3)
}

// handKeys hands the sealing keys of the server that has them to the others.
func handKeys(t *testing.T, machines []*storeMachine, export, take string) {
	t.Helper()
	var has *storeMachine
	eventually(t, "one server has made the root, and has its key", func() error {
		for _, m := range machines {
			if _, err := m.try("portolan secret key export > /dev/null"); err == nil {
				has = m
				return nil
			}
		}
		return errors.New("none has a key")
	})
	has.do(export)
	for _, m := range machines {
		if m != has {
			carry(t, "keys", has.shell, m.shell)
			m.do(take)
		}
		eventually(t, "it can open all secrets", func() error {
			if out, err := m.try("portolan secret status"); err != nil || strings.Contains(out, "cannot be opened") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
}

// pageOf returns the commands of a page by its sections.
func pageOf(t *testing.T, text string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		var block strings.Builder
		for line := range strings.Lines(body) {
			if command, ok := strings.CutPrefix(line, "    "); ok {
				block.WriteString(command)
			}
		}
		for _, command := range commands(t, block.String()) {
			out[title] = append(out[title], strings.TrimSpace(command))
		}
	}
	return out
}

// forMember returns a command for one server of the store as one for another.
func forMember(command, from, to string) string {
	return strings.NewReplacer("cp-"+from, "cp-"+to, "10.0.0."+from, "10.0.0."+to).Replace(command)
}

// numbered returns the command of the first server as one for another. The list of all servers
// stays as it is.
func numbered(command, number string) string {
	command = strings.Replace(command, "--store-name cp-1 --store-peer-url https://10.0.0.1:2380", "--store-name cp-"+number+" --store-peer-url https://10.0.0."+number+":2380", 1)
	return strings.Replace(command, "--store-cert cp-1.pem --store-key cp-1-key.pem", "--store-cert cp-"+number+".pem --store-key cp-"+number+"-key.pem", 1)
}

func withoutComment(command string) string {
	command, _, _ = strings.Cut(command, "#")
	return strings.TrimSpace(command)
}

// loseAll ends the server as a power failure does. The machine that takes its place has nothing.
func (m *storeMachine) loseAll() {
	m.t.Helper()
	m.lose()
	m.dir = m.t.TempDir()
}
