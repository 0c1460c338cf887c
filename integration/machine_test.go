package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// listedMachine is the part of a machine of machine list that tests look at.
type listedMachine struct {
	Name, Group, Node, Server, Drained, Removed string
	Connected                                   bool
	Facts                                       *struct {
		Agent, Envoy, Capture string
		EnvoySince            time.Time
	}
	CertificateEnds time.Time
}

// machines returns what machine list tells of the namespace shop, by name.
func (s *server) machines() (map[string]listedMachine, error) {
	o := s.try("", "machine", "list", "-n", "shop", "-o", "json")
	if o.code != 0 {
		return nil, errors.New(o.stderr)
	}
	var list struct{ Items []listedMachine }
	if err := json.Unmarshal([]byte(o.stdout), &list); err != nil {
		return nil, err
	}
	out := map[string]listedMachine{}
	for _, m := range list.Items {
		out[m.Name] = m
	}
	return out, nil
}

// awaitMachine waits until a machine is as it is to be.
func (s *server) awaitMachine(what, name string, is func(listedMachine) bool) (m listedMachine) {
	s.t.Helper()
	eventually(s.t, what, func() error {
		all, err := s.machines()
		if m = all[name]; err == nil && !is(m) {
			err = fmt.Errorf("it is %+v", m)
		}
		return err
	})
	return m
}

// says runs a command, which is to end with a code and to print words.
func (s *server) says(args []string, code int, words ...string) {
	s.t.Helper()
	o := s.try("", args...)
	if o.code != code {
		s.t.Errorf("%s: code %d, want %d: %s", strings.Join(args, " "), o.code, code, o.stderr)
	}
	for _, word := range words {
		if !strings.Contains(o.stdout+o.stderr, word) {
			s.t.Errorf("%s: no %q in\n%s%s", strings.Join(args, " "), word, o.stdout, o.stderr)
		}
	}
}

// awaitService waits until describe service says something.
func (s *server) awaitService(host, want string) {
	s.t.Helper()
	eventually(s.t, host+": "+want, func() error {
		if o := s.try("", "describe", "service", host); !strings.Contains(o.stdout, want) {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
}

const byHand = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: hand, namespace: shop}
spec:
  hosts: [hand.shop.test]
  resolution: STATIC
  ports: [{number: 9999, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: hand}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: hand, namespace: shop}
spec: {address: 10.9.9.9, labels: {app: hand}, serviceAccount: web}
`

// programs are those of a machine and its servers; empty for the ones that are tested.
type programs struct{ server, agent string }

// newGroupMachine joins a machine with an agent to the group web, at 127.0.0.1, and starts it. Its
// servers share an etcd. Its Envoy sends to its own application.
func newGroupMachine(t *testing.T, n int, of programs, options ...string) (m *agentMachine, servers []*server, web *groupWeb) {
	needEnvoy(t)
	etcd, keys, web := startEtcd(t), sealingKeys(t), newGroupWeb(t)
	var addresses []string
	invite := []string{"machine", "invite", "-n", "shop", "--group", "web"}
	for range n {
		xds := local(freePort(t))
		s := startServer(t, serverOptions{etcd: etcd, args: []string{"--secure-xds-address", xds, "--sealing-key", keys}, program: of.server})
		servers, addresses = append(servers, s), append(addresses, xds)
		invite = append(invite, "--api-url", "https://"+s.api, "--xds-address", xds)
	}
	plain := strings.Replace(web.group(), "labels: {app: web}", "labels: {app: web, security.istio.io/tlsMode: disabled}", 1)
	servers[0].apply(plain, web.service(), byHand)
	m = &agentMachine{server: servers[0], t: t, dir: t.TempDir(), secureXDS: addresses[0], admin: local(freePort(t)), metrics: local(freePort(t)), ready: local(freePort(t)), client: clientOf(t), ip: "127.0.0.1", program: of.agent}
	text, ok := strings.CutPrefix(strings.TrimSpace(servers[0].must("", invite...)), "portolan-agent join ")
	if !ok {
		t.Fatal(text)
	}
	if o := m.join(text, options...); o.code != 0 {
		t.Fatalf("join: %+v", o)
	}
	m.run()
	return m, servers, web
}

// awaitTold waits until the machine itself says words of its registration, in its status, and is ready
// or not.
func (m *agentMachine) awaitTold(what string, ready bool, words ...string) {
	m.t.Helper()
	eventually(m.t, what, func() error {
		o := m.agent("status")
		for _, word := range words {
			if !strings.Contains(o.stdout, word) {
				return fmt.Errorf("%q is not in %s%s", word, o.stdout, o.stderr)
			}
		}
		if strings.Contains(o.stdout, "not ready") == ready {
			return errors.New(o.stdout)
		}
		return nil
	})
}

// TestMachines: each server tells of all machines, with what their agents say. A drained machine
// knows it, gets no requests and keeps its stream, and is drained after its agent and its server have
// restarted. A removed one is not registered before it is let back.
func TestMachines(t *testing.T) {
	t.Parallel()
	m, servers, web := newGroupMachine(t, 2, programs{})
	const name = "web-127.0.0.1"
	awaitReply(t, web.request(), "here")
	m.awaitTold("it is registered", true, "registered, workloadentry/shop/"+name)
	connected := func(m listedMachine) bool {
		return m.Connected && m.Facts != nil && m.Facts.Envoy != "" && !m.Facts.EnvoySince.IsZero() && m.Facts.Capture == "none" && !m.CertificateEnds.IsZero()
	}
	for _, s := range servers {
		s.awaitMachine("the machine, with what its agent says", name, connected)
		if all, err := s.machines(); err != nil || len(all) != 2 || all["hand"].Group != "" || all["hand"].Connected {
			t.Errorf("machines are %+v, %v", all, err)
		}
		s.says([]string{"proxy", "status"}, 0, "AGENT", "CERT", "CAPTURE", "none")
		s.says([]string{"machine", "describe", name, "-n", "shop"}, 0, "group    ", "app=web", "of metadata of the group", "connected")
	}

	before, err := m.status()
	if err != nil {
		t.Fatal(err)
	}
	servers[1].says([]string{"machine", "drain", name, "-n", "shop", "--reason", "a new disk", "--wait"}, 0, "drained")
	awaitReply(t, web.request(), "503")
	servers[0].awaitService("web.shop.test", "it is drained: a new disk")
	m.awaitTold("it is drained", false, "drained by the mesh's operators: a new disk")
	if o := m.agent("doctor"); !strings.Contains(o.stdout, "is drained: a new disk") {
		t.Errorf("doctor: %s%s", o.stdout, o.stderr)
	}
	servers[0].awaitMachine("it is drained and connected", name, func(m listedMachine) bool { return connected(m) && m.Drained == "a new disk" })
	if now, err := m.status(); err != nil || len(now.Clients) != 1 || now.Clients[0] != before.Clients[0] {
		t.Errorf("the stream was %+v, and is %+v, %v", before.Clients, now.Clients, err)
	}
	if err := m.process.terminate(t); err != nil {
		t.Error(err)
	}
	servers[0].awaitMachine("it is drained and away", name, func(m listedMachine) bool { return !m.Connected && m.Drained == "a new disk" })
	if err := servers[0].process.terminate(t); err != nil {
		t.Error(err)
	}
	m.run()
	servers[1].awaitMachine("it is drained when it is back", name, func(m listedMachine) bool { return connected(m) && m.Drained == "a new disk" })
	awaitReply(t, web.request(), "503")
	servers[1].says([]string{"machine", "drain", name, "-n", "shop", "--end"}, 0, "drained no more")
	awaitReply(t, web.request(), "here")
	m.awaitTold("it is taken back", true, "registered, workloadentry/shop/"+name)

	s := servers[1]
	s.says([]string{"machine", "remove", name, "-n", "shop"}, 64, "--yes")
	s.says([]string{"machine", "remove", name, "-n", "shop", "--reason", "stolen", "--yes"}, 0, "removed")
	awaitReply(t, web.request(), "503")
	s.awaitFinding("is removed: stolen")
	m.awaitTold("it is removed", false, "refused: ", "is removed: stolen")
	if o := m.agent("doctor"); o.code != 79 || !strings.Contains(o.stdout, "is removed: stolen") {
		t.Errorf("doctor: %d %s%s", o.code, o.stdout, o.stderr)
	}
	if err := m.process.terminate(t); err != nil {
		t.Error(err)
	}
	m.run()
	s.awaitMachine("it is removed when it is back", name, func(m listedMachine) bool { return connected(m) && m.Removed == "stolen" })
	awaitReply(t, web.request(), "503")
	s.says([]string{"machine", "remove", name, "-n", "shop", "--end"}, 0, "removed no more")
	awaitReply(t, web.request(), "here")

	s.says([]string{"machine", "drain", "hand", "-n", "shop"}, 0, "drained")
	s.awaitService("hand.shop.test", "it is drained: no reason given")
	s.says([]string{"machine", "drain", "hand", "-n", "shop", "--end"}, 0)
	s.awaitService("hand.shop.test", "1 healthy")
	s.says([]string{"machine", "remove", "hand", "-n", "shop", "--yes"}, 0, "removed")
	s.awaitService("hand.shop.test", "No endpoints")
	s.says([]string{"machine", "describe", "hand", "-n", "shop"}, 1, "no machine of shop has the name hand")
}

// TestMachineFactsFollowTheCertificate: the end of a machine's certificate is that of the renewed one.
func TestMachineFactsFollowTheCertificate(t *testing.T) {
	t.Parallel()
	m, servers, _ := newGroupMachine(t, 1, programs{}, "--ttl", "20s")
	first := servers[0].awaitMachine("the end of the certificate", "web-127.0.0.1", func(m listedMachine) bool { return m.Facts != nil && !m.CertificateEnds.IsZero() })
	servers[0].awaitMachine("the end of the renewed one", "web-127.0.0.1", func(m listedMachine) bool { return m.CertificateEnds.After(first.CertificateEnds) })
	if !m.process.running() {
		t.Error(m.process.Err())
	}
}

// lastRelease builds the programs of the last release, which is the last tag.
func lastRelease(t *testing.T) programs {
	t.Helper()
	out, err := exec.Command("git", "tag", "--list", "v*", "--sort=-v:refname").Output()
	tags := strings.Fields(string(out))
	if err != nil || len(tags) == 0 {
		t.Skip("there is no release yet: no tag v*")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	for _, args := range [][]string{
		{"git", "worktree", "add", "--detach", source, tags[0]},
		{"go", "build", "-C", source, "-o", dir, "./cmd/portolan"},
		{"go", "build", "-C", source, "-tags", agentTags, "-o", dir, "./cmd/portolan-agent"},
		{"git", "worktree", "remove", "--force", source},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return programs{filepath.Join(dir, "portolan"), filepath.Join(dir, "portolan-agent")}
}

// TestAgentsAndServersOfTwoReleases: an agent goes with a server of the last release, which neither
// ends its stream nor complains, and an agent of that release goes with a server of this one.
func TestAgentsAndServersOfTwoReleases(t *testing.T) {
	t.Parallel()
	last := lastRelease(t)
	for name, of := range map[string]programs{"an older server": {server: last.server}, "an older agent": {agent: last.agent}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, servers, web := newGroupMachine(t, 1, of)
			awaitReply(t, web.request(), "here")
			before, err := m.status()
			if err != nil {
				t.Fatal(err)
			}
			servers[0].apply(strings.ReplaceAll(byHand, "hand", "later"))
			eventually(t, "the machine gets a change", func() error { return m.hasCluster("outbound|9999||later.shop.test") })
			if now, err := m.status(); err != nil || len(now.Clients) != 1 || now.Clients[0] != before.Clients[0] {
				t.Errorf("the stream was %+v, and is %+v, %v", before.Clients, now.Clients, err)
			}
			if log := servers[0].process.output(); strings.Contains(log, "portolan.machine.v1") {
				t.Errorf("the server complains:\n%s", log)
			}
		})
	}
}
