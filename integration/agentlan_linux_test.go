package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
)

// lan is a network of machines and the mesh that they are in. Its servers are at 10.77.0.1, or at
// fd77::1 if that is all it has.
type lan struct {
	*server
	t        testing.TB
	wire     *namespace
	families families
	ip       string // of the servers
	api, xds string // as machines reach them
	machines int
}

// families are those of the addresses that machines of a lan have.
type families string

const (
	onlyIPv4     families = "IPv4"
	onlyIPv6     families = "IPv6"
	bothFamilies families = "both families"
)

// choose returns the values of the families, that of IPv4 before that of IPv6.
func (f families) choose(v4, v6 string) []string {
	switch f {
	case onlyIPv4:
		return []string{v4}
	case onlyIPv6:
		return []string{v6}
	}
	return []string{v4, v6}
}

// newLAN makes a network and starts a server for it, with some flags.
func newLAN(t testing.TB, flags ...string) *lan {
	t.Helper()
	return newLANOf(t, onlyIPv4, flags...)
}

// newLANOf is newLAN for machines with addresses of these families.
func newLANOf(t testing.TB, f families, flags ...string) *lan {
	t.Helper()
	l := newWire(t, f)
	l.server = l.serverIn(l.wire)
	l.start(flags...)
	return l
}

// newWire makes a network without a server.
func newWire(t testing.TB, f families) *lan {
	t.Helper()
	needEnvoy(t)
	needNamespaces(t)
	l := &lan{t: t, wire: newNamespace(t, "wire"), families: f, ip: f.choose("10.77.0.1", "fd77::1")[0]}
	l.api, l.xds = net.JoinHostPort(l.ip, "15080"), net.JoinHostPort(l.ip, "15012")
	// An address of its own: else the bridge takes the least of its ports, and machines lose it for
	// half a minute when another one comes.
	l.wire.ip("link", "add", "lan", "address", "02:00:00:00:77:01", "type", "bridge")
	l.wire.up("lan", f.choose("10.77.0.1/16", "fd77::1/64")...)
	return l
}

// serverIn returns a server that is to run in a namespace. Commands reach it from outside.
func (l *lan) serverIn(n *namespace) *server {
	l.t.Helper()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	passOn(l.t, front, func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "127.0.0.1:15080", 0) })
	return &server{t: l.t, o: serverOptions{dataDir: filepath.Join(l.t.TempDir(), "data")}, api: front.Addr().String(), client: clientOf(l.t)}
}

// start starts the server and waits until it is ready.
func (l *lan) start(flags ...string) {
	l.t.Helper()
	if _, err := os.Stat(filepath.Join(l.server.o.dataDir, "etcd")); err != nil {
		flags = append(flags, "--new-store")
	}
	l.server.launchIn(l.wire, l.ip, flags...)
	l.server.awaitServing()
}

// launchIn runs the server in a namespace at the usual ports of an address.
func (s *server) launchIn(n *namespace, ip string, flags ...string) {
	s.t.Helper()
	args := append(n.command(), binary, "serve", "--api-address", ":15080", "--xds-address", "127.0.0.1:15010", "--secure-xds-address", net.JoinHostPort(ip, "15012"),
		"--api-name", ip, "--data-dir", s.o.dataDir)
	s.process = start(s.t, "portolan", args[0], append(args[1:], flags...)...)
}

// awaitServing waits until the server is ready.
func (s *server) awaitServing() {
	s.t.Helper()
	eventually(s.t, "the server is ready", func() error {
		_, err := s.get("/readyz", nil)
		if err != nil && !s.process.running() {
			s.t.Fatalf("the server has ended: %v\n%s", s.process.Err(), s.process.tail())
		}
		return err
	})
}

// lanMachine is a machine of a lan. Its agent and its Envoy run as the sidecar's user.
type lanMachine struct {
	*namespace
	lan      *lan
	name, ip string   // the first of ips
	ips      []string // by family
	dir      string
	process  *process
}

// machine adds a machine to the network.
func (l *lan) machine(name string) *lanMachine {
	l.t.Helper()
	l.machines++
	ips := l.families.choose(fmt.Sprintf("10.77.1.%d", l.machines), fmt.Sprintf("fd77::1:%d", l.machines))
	m := &lanMachine{namespace: newNamespace(l.t, name), lan: l, name: name, ip: ips[0], ips: ips, dir: l.t.TempDir()}
	if err := os.Chown(m.dir, sidecarUser, sidecarUser); err != nil {
		l.t.Fatal(err)
	}
	m.plug()
	return m
}

// plug connects the machine to the network.
func (m *lanMachine) plug() {
	m.t.Helper()
	port := "p" + m.ip[strings.LastIndexAny(m.ip, ".:")+1:]
	m.namespace.ip("link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", m.lan.wire.name)
	m.namespace.ip("link", "set", "eth0", "addrgenmode", "none") // such an address comes late
	for _, ip := range m.ips {
		if strings.Contains(ip, ":") {
			m.up("eth0", ip+"/64")
			m.namespace.ip("-6", "route", "add", "default", "via", "fd77::1")
		} else {
			m.up("eth0", ip+"/16")
			m.namespace.ip("route", "add", "default", "via", "10.77.0.1")
		}
	}
	m.lan.wire.ip("link", "set", port, "master", "lan", "up")
}

// invite returns an invitation.
func (l *lan) invite(flags ...string) string {
	l.t.Helper()
	return l.invitation(l.api, l.xds, flags...)
}

// agent runs a command of the agent, as root.
func (m *lanMachine) agent(args ...string) outcome {
	m.t.Helper()
	command := append(m.command(), needAgent(m.t))
	return runCommand(m.t, exec.Command(command[0], append(append(command[1:], args...), "--config", filepath.Join(m.dir, "config.yaml"))...))
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
	Certificate struct{ Renewed time.Time }
	Clients     []struct{ Server string }
	Envoy       struct {
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

// outside sends a request from the network, by somebody who is not in the mesh.
func (m *lanMachine) outside(url, host string) (string, error) {
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r.Host = host
	got, err := answer(m.lan.wire.http(m.t), r)
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("%d %s", got.status, got.body)
	}
	return got.body, err
}
