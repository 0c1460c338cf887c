package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
)

// lan is a network of machines and the mesh that they are in. Its servers are at 10.77.0.1.
type lan struct {
	*server
	t        testing.TB
	wire     *namespace
	api, xds string // as machines reach them
	machines int
}

// newLAN makes a network and starts a server for it, with some flags.
func newLAN(t testing.TB, flags ...string) *lan {
	t.Helper()
	needEnvoy(t)
	needNamespaces(t)
	l := &lan{t: t, wire: newNamespace(t, "wire"), api: "10.77.0.1:15080", xds: "10.77.0.1:15012"}
	l.wire.ip("link", "add", "lan", "type", "bridge")
	l.wire.up("lan", "10.77.0.1/16")
	front, err := net.Listen("tcp", "127.0.0.1:0") // for the commands of people
	if err != nil {
		t.Fatal(err)
	}
	passOn(t, front, func(ctx context.Context) (net.Conn, error) { return l.wire.dial(ctx, "127.0.0.1:15080", 0) })
	l.server = &server{t: t, o: serverOptions{dataDir: filepath.Join(t.TempDir(), "data")}, api: front.Addr().String(), client: clientOf(t)}
	l.start(flags...)
	return l
}

// start starts the server and waits until it is ready.
func (l *lan) start(flags ...string) {
	l.t.Helper()
	args := append(l.wire.command(), binary, "serve", "--api-address", "0.0.0.0:15080", "--xds-address", "127.0.0.1:15010", "--secure-xds-address", l.xds,
		"--api-name", "10.77.0.1", "--data-dir", l.server.o.dataDir)
	if _, err := os.Stat(filepath.Join(l.server.o.dataDir, "etcd")); err != nil {
		args = append(args, "--new-store")
	}
	l.server.process = start(l.t, "portolan", args[0], append(args[1:], flags...)...)
	eventually(l.t, "the server is ready", func() error {
		_, err := l.get("/readyz", nil)
		if err != nil && !l.server.process.running() {
			l.t.Fatalf("the server has ended: %v\n%s", l.server.process.Err(), l.server.process.tail())
		}
		return err
	})
}

// lanMachine is a machine of a lan. Its agent and its Envoy run as the sidecar's user.
type lanMachine struct {
	*namespace
	lan      *lan
	name, ip string
	dir      string
	process  *process
}

// machine adds a machine to the network.
func (l *lan) machine(name string) *lanMachine {
	l.t.Helper()
	l.machines++
	m := &lanMachine{namespace: newNamespace(l.t, name), lan: l, name: name, ip: fmt.Sprintf("10.77.1.%d", l.machines), dir: l.t.TempDir()}
	if err := os.Chown(m.dir, sidecarUser, sidecarUser); err != nil {
		l.t.Fatal(err)
	}
	m.plug()
	return m
}

// plug connects the machine to the network.
func (m *lanMachine) plug() {
	m.t.Helper()
	port := "p" + m.ip[strings.LastIndexByte(m.ip, '.')+1:]
	m.namespace.ip("link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", m.lan.wire.name)
	m.namespace.ip("link", "set", "eth0", "addrgenmode", "none") // such an address comes late
	m.up("eth0", m.ip+"/16")
	m.namespace.ip("route", "add", "default", "via", "10.77.0.1")
	m.lan.wire.ip("link", "set", port, "master", "lan", "up")
}

// invite returns an invitation.
func (l *lan) invite(flags ...string) string {
	l.t.Helper()
	line := l.must("", append([]string{"machine", "invite", "-n", "shop", "--api-url", "https://" + l.api, "--xds-address", l.xds}, flags...)...)
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "portolan-agent join ")
	if !ok {
		l.t.Fatalf("the line is %q", line)
	}
	return text
}

// agent runs a command of the agent, as root.
func (m *lanMachine) agent(args ...string) outcome {
	m.t.Helper()
	command := append(m.command(), needAgent(m.t))
	c := exec.Command(command[0], append(append(command[1:], args...), "--config", filepath.Join(m.dir, "config.yaml"))...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		m.t.Fatal(err)
	}
	return outcome{code: c.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
}

// must runs a command of the agent that has to succeed.
func (m *lanMachine) must(args ...string) string {
	m.t.Helper()
	o := m.agent(args...)
	if o.code != 0 {
		m.t.Fatalf("portolan-agent %s: %+v", strings.Join(args, " "), o)
	}
	return o.stdout
}

func (m *lanMachine) join(invitation string, flags ...string) {
	m.t.Helper()
	m.must(append([]string{"join", invitation, "--dir", m.dir, "--name", m.name, "--envoy", needEnvoy(m.t)}, flags...)...)
}

// run starts the agent as its user.
func (m *lanMachine) run() {
	m.t.Helper()
	command := append(asUser{m.namespace, sidecarUser}.command(), needAgent(m.t), "run", "--config", filepath.Join(m.dir, "config.yaml"))
	m.process = start(m.t, "agent of "+m.name, command[0], command[1:]...)
}

// change changes the file of the agent.
func (m *lanMachine) change(from, to string) {
	m.t.Helper()
	file := filepath.Join(m.dir, "config.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	changed := strings.Replace(string(text), from, to, 1)
	if changed == string(text) {
		m.t.Fatalf("the file has no %q:\n%s", from, text)
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

type lanStatus struct {
	Envoy struct {
		PID   int
		Epoch int
	}
	Capture capture.Status
}

func (m *lanMachine) status() (out lanStatus, err error) {
	o := m.agent("status", "-o", "json")
	if o.code != 0 {
		return out, fmt.Errorf("%+v", o)
	}
	return out, json.Unmarshal([]byte(o.stdout), &out)
}

// awaitStatus waits for a status.
func (m *lanMachine) awaitStatus(what string, is func(lanStatus) bool) (out lanStatus) {
	m.t.Helper()
	eventually(m.t, what, func() (err error) {
		if out, err = m.status(); err == nil && !is(out) {
			err = fmt.Errorf("it is %+v", out)
		}
		if err != nil && !m.process.running() {
			m.t.Fatalf("the agent has ended: %v\n%s", m.process.Err(), m.process.tail())
		}
		return err
	})
	return out
}

// get sends a request from an application of the machine, on a connection of its own.
func (m *lanMachine) get(url, host string) (reply, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return reply{}, err
	}
	r.Host = host
	return answer(m.namespace.http(m.t), r)
}

// TestAgentKeepsCapture: the agent puts the rules in force when it starts, again when others have
// flushed them, and says so. Killed and started again it finds them. What happens while no Envoy
// runs is as the file says. In the end nothing is left.
func TestAgentKeepsCapture(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: shop}
spec:
  hosts: [far.shop.test]
  resolution: STATIC
  addresses: [10.9.0.1]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 9080}]
  endpoints: [{address: 10.77.0.1}]
`)
	serveUpstream(t, "far", l.wire.listen("10.77.0.1:9080"))
	m := l.machine("web")
	foreign := m.ruleset()
	m.join(l.invite("--service-account", "web"), "--interception", "REDIRECT")
	if info, err := os.Stat(filepath.Join(m.dir, "config.yaml")); err != nil || info.Sys().(*syscall.Stat_t).Uid != sidecarUser {
		t.Errorf("the file is not of the agent's user: %v, %v", info, err)
	}
	m.run()
	captured := func() {
		t.Helper()
		awaitServed(t, "a captured request", m.namespace.http(t), "http://10.9.0.1/", "far.shop.test", "far")
	}
	captured()
	m.awaitStatus("the rules are in force", func(s lanStatus) bool { return s.Capture.State == capture.InForce && s.Capture.Mended == 0 })
	rules := m.ruleset()

	m.nft("flush ruleset")
	m.awaitStatus("the rules are mended", func(s lanStatus) bool { return s.Capture.State == capture.InForce && s.Capture.Mended == 1 })
	if diff := cmp.Diff(rules, m.ruleset()); diff != "" {
		t.Errorf("mended rules differ:\n%s", diff)
	}
	captured()

	// direct is reached by connections that pass; captured ones need the Envoy.
	direct := func() error {
		got, err := m.get("http://10.77.0.1:9080/", "")
		if err == nil && got.String() != "far" {
			err = fmt.Errorf("it is answered by %s", got)
		}
		return err
	}
	pid := m.awaitStatus("an Envoy runs", func(s lanStatus) bool { return s.Envoy.PID != 0 }).Envoy.PID
	m.process.kill()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if err := direct(); err == nil {
		t.Error("without an Envoy a connection passes")
	}
	m.run()
	captured()
	if diff := cmp.Diff(rules, m.ruleset()); diff != "" {
		t.Errorf("the rules after a crash differ:\n%s", diff)
	}
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	if err := direct(); err == nil {
		t.Error("with a stopped agent a connection passes")
	}
	if !strings.Contains(m.process.output(), "refused until the agent runs again") {
		t.Errorf("the agent does not say what is refused:\n%s", m.process.tail())
	}

	m.change("capture: {}\n", "capture: {whenDown: PASS}\n")
	m.run()
	captured()
	pid = m.awaitStatus("the rules are in force", func(s lanStatus) bool { return s.Capture.State == capture.InForce }).Envoy.PID
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	eventually(t, "connections pass by an Envoy that hangs", direct)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	m.awaitStatus("the rules are in force again", func(s lanStatus) bool { return s.Capture.State == capture.InForce })
	captured()
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	if err := direct(); err != nil {
		t.Errorf("with a stopped agent that lets pass: %v", err)
	}
	if diff := cmp.Diff(foreign, m.ruleset()); diff != "" {
		t.Errorf("the agent leaves something:\n%s", diff)
	}
}

// TestAgentDoctorAndLeave: doctor finds what is wrong on a machine, and leave takes the machine out
// of the mesh without a trace.
func TestAgentDoctorAndLeave(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: web, namespace: shop}\nspec:\n  template: {serviceAccount: web}\n")
	m := l.machine("web")
	foreign := m.ruleset()
	expect := func(code int, lines ...string) {
		t.Helper()
		o := m.agent("doctor")
		if o.code != code {
			t.Errorf("doctor: %+v", o)
		}
		for _, want := range lines {
			if !regexp.MustCompile("(?m)" + want).MatchString(o.stdout) {
				t.Errorf("doctor says nothing of %q:\n%s", want, o.stdout)
			}
		}
	}
	if o := m.agent("doctor"); o.code != 65 || !strings.Contains(o.stderr, "portolan-agent join") {
		t.Errorf("doctor before join: %+v", o)
	}
	m.join(l.invite("--group", "web"), "--interception", "REDIRECT")
	expect(0, `^ok +certificate +spiffe://cluster.local/ns/shop/sa/web, for (24h0m0s|23h59m)`, `^ok +config API +https://10.77.0.1:15080 answers`, `^ok +clock +as that of`,
		`^ok +xDS +10.77.0.1:15012 takes the machine's certificate`, `^ok +Envoy .* is 1\.`, `^warning +agent +it does not run`, `^ok +port +127.0.0.1:15000 is free`, `^ok +disk `, `^ok +capture +the rules are absent`)
	busy := m.listen("127.0.0.1:15020")
	m.nft("table ip nat {\n\tchain ISTIO_OUTPUT { type nat hook output priority -100; tcp dport 80 redirect to :15001; }\n}\n")
	expect(79, `^fault +port +127.0.0.1:15020: .*address already in use`, `^warning +capture +the table ip nat redirects connections too`)
	_ = busy.Close()
	m.nft("delete table ip nat")
	m.lan.wire.ip("link", "set", "lan", "down")
	expect(79, `^fault +config API +https://10.77.0.1:15080: `, `^fault +xDS +10.77.0.1:15012: `)
	m.lan.wire.ip("link", "set", "lan", "up")

	m.run()
	m.awaitStatus("the rules are in force", func(s lanStatus) bool { return s.Capture.State == capture.InForce && s.Envoy.PID != 0 })
	eventually(t, "the machine is registered", func() error {
		if o := l.try("", "get", "workloadentries", "-n", "shop"); !strings.Contains(o.stdout, "web-10.77.1.1") {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})
	eventually(t, "doctor finds all well", func() error {
		if o := m.agent("doctor"); o.code != 0 || strings.Contains(o.stdout, "warning") {
			return fmt.Errorf("%+v", o)
		}
		return nil
	})

	m.process.MayEnd()
	if out := m.must("leave"); !strings.Contains(out, "has left the mesh") {
		t.Errorf("leave: %s", out)
	}
	if m.process.running() {
		t.Error("the agent still runs")
	}
	if o := l.try("", "get", "workloadentries", "-n", "shop"); strings.Contains(o.stdout, "web-10.77.1.1") {
		t.Errorf("the entry is still there: %+v", o)
	}
	if diff := cmp.Diff(foreign, m.ruleset()); diff != "" {
		t.Errorf("rules are left:\n%s", diff)
	}
	var left []string
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"config.yaml.left"}, left); diff != "" {
		t.Errorf("files are left:\n%s", diff)
	}
}

// entries returns the addresses of the WorkloadEntries of the namespace.
func (l *lan) entries() string {
	l.t.Helper()
	o := l.try("", "get", "workloadentries", "-n", "shop", "-o", "jsonpath={.items[*].spec.address}")
	if o.code != 0 {
		l.t.Fatalf("%+v", o)
	}
	return strings.TrimSpace(o.stdout)
}

// awaitEntries waits for the addresses of the WorkloadEntries of the namespace.
func (l *lan) awaitEntries(what, want string) {
	l.t.Helper()
	eventually(l.t, what, func() error {
		if got := l.entries(); got != want {
			return fmt.Errorf("entries are at %q, want %q", got, want)
		}
		return nil
	})
}

// TestAgentMoves: a machine that gets another address by DHCP leaves the mesh at the old one and is
// in it at the new one. Its clients and its applications go on.
func TestAgentMoves(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply(webGroup)
	m, client := l.machine("web"), l.machine("client")
	serveUpstream(t, "web", m.listen(":8080"))
	m.join(l.invite("--group", "web"), "--interception", "REDIRECT")
	client.join(l.invite("--service-account", "client"), "--interception", "REDIRECT")
	m.run()
	client.run()
	served := func(what string) {
		t.Helper()
		awaitServed(t, what, client.namespace.http(t), "http://10.9.0.1/", "web.shop.test", "web")
	}
	served("a request at the first address")
	l.awaitEntries("the first address", "10.77.1.1")

	began := time.Now()
	m.namespace.ip("addr", "add", "10.77.9.9/16", "dev", "eth0")
	m.namespace.ip("addr", "del", "10.77.1.1/16", "dev", "eth0") // takes the routes with it
	m.namespace.ip("addr", "replace", "10.77.9.9/16", "dev", "eth0")
	l.awaitEntries("the other address", "10.77.9.9")
	t.Logf("an entry at the new address, and none at the old one: after %s", time.Since(began).Round(time.Millisecond))
	served("a request at the other address")
	if out := m.must("status"); !strings.Contains(out, "sidecar~10.77.9.9~web.shop") {
		t.Errorf("the status: %s", out)
	}
}

// TestAMachineIsGoneWhenItIsGone: the entry of a machine whose power is cut goes within its lease,
// though nobody tells its server.
func TestAMachineIsGoneWhenItIsGone(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply("apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: web, namespace: shop}\nspec:\n  template: {serviceAccount: web}\n")
	m := l.machine("web")
	m.join(l.invite("--group", "web"))
	m.run()
	l.awaitEntries("the machine", "10.77.1.1")
	began := time.Now()
	m.namespace.ip("link", "set", "eth0", "down") // no packet leaves it any more
	l.awaitEntries("the machine is gone", "")
	took := time.Since(began)
	t.Logf("the entry of a machine without power is gone after %s", took.Round(time.Millisecond))
	if took > 12*time.Second {
		t.Errorf("it took %s", took)
	}
}

// load has an application of the machine send some 500 requests a second, until it is stopped. It
// returns how many failed.
func (m *lanMachine) load(url, host string) (stop func() (sent, failed int64)) {
	client := m.namespace.http(m.t)
	client.Transport.(*http.Transport).DisableKeepAlives = false
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 8
	var all, bad atomic.Int64
	call := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			m.t.Error(err)
			return
		}
		r.Host = host
		got, err := answer(client, r)
		if errors.Is(ctx.Err(), context.Canceled) {
			return
		}
		all.Add(1)
		if err != nil || got.status != http.StatusOK {
			if bad.Add(1) <= 3 {
				m.t.Logf("a failed request: %s %v", got, err)
			}
		}
	}
	end := atPace(m.t, call, call, call, call)
	return func() (int64, int64) {
		end()
		return all.Load(), bad.Load()
	}
}

// restart ends the agent in order, and starts it again.
func (m *lanMachine) restart() {
	m.t.Helper()
	if err := m.process.terminate(m.t); err != nil {
		m.t.Errorf("the agent of %s: %v", m.name, err)
	}
	m.run()
}

// TestMachinesUnderHarm: two machines serve a third one that sends 500 requests a second. What is
// replaced in order costs no request. What is killed costs the requests under way there, which are
// counted.
func TestMachinesUnderHarm(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	l.apply(webGroup)
	one, two, client := l.machine("one"), l.machine("two"), l.machine("client")
	for _, m := range []*lanMachine{one, two} {
		serveUpstream(t, m.name, m.listen(":8080"))
		m.join(l.invite("--group", "web"), "--interception", "REDIRECT")
		m.run()
	}
	client.join(l.invite("--service-account", "client"), "--interception", "REDIRECT")
	client.run()
	l.awaitEntries("both machines", "10.77.1.1 10.77.1.2")
	for _, m := range []*lanMachine{one, two} {
		awaitServed(t, "an answer of each", client.namespace.http(t), "http://10.9.0.1/", "web.shop.test", m.name)
	}
	// served waits until requests are answered by both machines again.
	served := func(what string) {
		t.Helper()
		l.awaitEntries(what, "10.77.1.1 10.77.1.2")
		for _, m := range []*lanMachine{one, two} {
			awaitServed(t, what, client.namespace.http(t), "http://10.9.0.1/", "web.shop.test", m.name)
		}
	}
	for _, harm := range []struct {
		what    string
		do      func()
		harmful bool
	}{
		{"the agents are restarted, one after the other", func() {
			for _, m := range []*lanMachine{one, two} {
				m.restart()
				served("the agent of " + m.name + " is back")
			}
		}, false},
		{"the Envoys are replaced, all at once", func() {
			for _, m := range []*lanMachine{one, two, client} {
				m.must("restart-envoy")
			}
			for _, m := range []*lanMachine{one, two, client} {
				m.awaitStatus("another Envoy of "+m.name, func(s lanStatus) bool { return s.Envoy.Epoch == 1 })
			}
			served("the Envoys are replaced")
		}, false},
		{"the server is restarted", func() {
			if err := l.server.process.terminate(t); err != nil {
				t.Errorf("the server: %v", err)
			}
			l.start()
			served("the server is back")
		}, false},
		{"the server is killed", func() {
			l.server.process.kill()
			l.start()
			served("the server is back")
		}, false},
		{"an Envoy is killed", func() {
			pid := one.awaitStatus("an Envoy", func(s lanStatus) bool { return s.Envoy.PID != 0 }).Envoy.PID
			_ = syscall.Kill(pid, syscall.SIGKILL)
			one.awaitStatus("another Envoy", func(s lanStatus) bool { return s.Envoy.PID != 0 && s.Envoy.PID != pid })
			served("its Envoy is back")
		}, true},
		{"an agent is killed", func() {
			one.process.kill()
			one.run()
			served("the agent is back")
		}, true},
		{"the power of a machine is cut", func() {
			one.namespace.ip("link", "set", "eth0", "down")
			l.awaitEntries("the machine is gone", "10.77.1.2")
			one.namespace.ip("link", "set", "eth0", "up")
			one.namespace.ip("route", "replace", "default", "via", "10.77.0.1")
			served("the machine is back")
		}, true},
	} {
		stop := client.load("http://10.9.0.1/", "web.shop.test")
		began := time.Now()
		harm.do()
		sent, failed := stop()
		t.Logf("%s: %d of %d requests failed, in %s", harm.what, failed, sent, time.Since(began).Round(time.Millisecond))
		if failed > 0 && !harm.harmful {
			t.Errorf("%s: %d requests failed", harm.what, failed)
		}
		if sent == 0 {
			t.Errorf("%s: nothing was sent", harm.what)
		}
	}
}

// webGroup is a group of machines, and the service that they are.
const webGroup = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec:
  metadata: {labels: {app: web}}
  template: {serviceAccount: web, ports: {http: 8080}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  resolution: STATIC
  location: MESH_INTERNAL
  addresses: [10.9.0.1]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  workloadSelector: {labels: {app: web}}
`
