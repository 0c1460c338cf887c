package integration

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// resolver gives a network a resolver at the address of its servers, which has one host, with an
// address of IPv4, and denies all others.
func (l *lan) resolver(host, ip string) {
	l.t.Helper()
	var packets net.PacketConn
	if err := l.wire.inside(func() (err error) {
		packets, err = (&net.ListenConfig{}).ListenPacket(l.t.Context(), "udp", net.JoinHostPort(l.ip, "53"))
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		switch asked := q.Question[0]; {
		case asked.Name != host+".":
			m.Rcode = dns.RcodeNameError
		case asked.Qtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(ip)}}
		}
		_ = w.WriteMsg(m)
	})
	started, ended := make(chan struct{}), make(chan struct{})
	server := &dns.Server{PacketConn: packets, Handler: handler, NotifyStartedFunc: func() { close(started) }}
	go func() { defer close(ended); _ = server.ActivateAndServe() }()
	<-started
	l.t.Cleanup(func() { _ = server.Shutdown(); <-ended })
}

// asks has the programs of the machine ask a resolver.
func (m *lanMachine) asks(resolvConf string) {
	m.t.Helper()
	dir := filepath.Join("/etc/netns", m.namespace.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte(resolvConf), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// program runs a program in the namespace, and returns what it prints.
func (n *namespace) program(command ...string) (string, error) {
	command = append(n.command(), command...)
	c := exec.CommandContext(n.t.Context(), command[0], command[1:]...)
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, problem.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// awaitName waits until the C library of the machine says that a name has an address, or none if
// that is empty.
func (m *lanMachine) awaitName(what, name, ip string) {
	m.t.Helper()
	eventually(m.t, what, func() error {
		got, err := m.program("getent", "ahostsv4", name)
		if !m.process.running() {
			m.t.Fatalf("the agent has ended: %v\n%s", m.process.Err(), m.process.tail())
		}
		if first, _, _ := strings.Cut(got, " "); first != ip {
			return fmt.Errorf("%s is at %q, want %q: %w", name, first, ip, err)
		}
		return nil
	})
}

// serviceAt is a service with an address, which answers on the wire.
func serviceAt(namespace, host, ip, more string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: %s}
spec:
  hosts: [%s]
  resolution: STATIC
  addresses: [%s]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 9080}]
  endpoints: [{address: 10.77.0.1}]
%s`, strings.ReplaceAll(host, ".", "-"), namespace, host, ip, more)
}

// TestAgentAnswersNames: programs of a machine that captures its traffic call hosts of the mesh by
// name, and their requests go through the Envoy. Other names are the resolver's. Names of other
// namespaces that the mesh or a Sidecar hides are not answered. With the server away, and then with
// the agent started again, names of the mesh are still answered.
func TestAgentAnswersNames(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	needTools(t, "curl", "dig")
	l.apply(serviceAt("shop", "far.shop.test", "10.9.0.1", ""), serviceAt("bank", "other.bank.test", "10.9.0.2", ""),
		serviceAt("bank", "own.bank.test", "10.9.0.3", "  exportTo: ['.']\n"), serviceAt("shop", "reviews.shop.svc.cluster.local", "10.9.0.4", ""))
	serveUpstream(t, "far", l.wire.listen("10.77.0.1:9080"))
	l.resolver("printer.corp.test", "10.77.0.9")
	m := l.machine("names")
	m.asks("nameserver 10.77.0.1\nsearch corp.test\noptions timeout:1\n")
	m.join(l.invite("--service-account", "web"), "--interception", "REDIRECT")
	m.run()

	calls := func(what, host string) {
		t.Helper()
		eventually(t, what, func() error {
			got, err := m.program("curl", "-sS", "-i", "--max-time", "5", "http://"+host+"/")
			if err == nil && (!strings.Contains(got, `"far"`) || !strings.Contains(got, "server: envoy")) {
				err = errors.New(got)
			}
			return err
		})
	}
	calls("a host of the mesh", "far.shop.test")
	calls("a short name", "reviews")
	m.awaitName("a name that the mesh has not", "printer.corp.test", "10.77.0.9")
	m.awaitName("the same by the search domain", "printer", "10.77.0.9")
	m.awaitName("a host of another namespace", "other.bank.test", "10.9.0.2")
	m.awaitName("a host that its namespace keeps", "own.bank.test", "")
	if got, err := m.program("dig", "+short", "+tcp", "far.shop.test"); err != nil || got != "10.9.0.1" {
		t.Errorf("over TCP it is %q, %v", got, err)
	}
	for _, at := range []string{"127.0.0.1", "::1"} { // as a stub of systemd-resolved asks
		if got, err := m.program("dig", "+short", "@"+at, "-p", "15053", "far.shop.test"); err != nil || got != "10.9.0.1" {
			t.Errorf("at %s it is %q, %v", at, got, err)
		}
	}
	if o := m.agent("status"); !strings.Contains(o.stdout, "10.77.0.1:53: in use") || !strings.Contains(o.stdout, "3 hosts, known since") {
		t.Errorf("the status is %+v", o)
	}
	if got := m.must("dns", "reviews"); !strings.Contains(got, "reviews.shop.svc.cluster.local") {
		t.Errorf("the origin is %q", got)
	}
	if got, err := m.program("curl", "-sS", "http://127.0.0.1:15020/metrics"); err != nil || !strings.Contains(got, "portolan_agent_dns_hosts 3\n") || !strings.Contains(got, "portolan_agent_dns_forwarded_total ") {
		t.Errorf("the metrics have no names: %v", err)
	}

	// Nobody answers at the other resolver, so its questions must come to the agent.
	m.asks("nameserver 10.77.0.2\nsearch corp.test\noptions timeout:1\n")
	m.awaitName("the machine has another resolver", "far.shop.test", "10.9.0.1")
	m.asks("nameserver 10.77.0.1\nsearch corp.test\noptions timeout:1\n")
	m.awaitName("the machine has its first resolver again", "printer.corp.test", "10.77.0.9")
	l.apply("apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default, namespace: shop}\nspec: {egress: [{hosts: ['./*']}]}\n")
	m.awaitName("a host that the Sidecar hides", "other.bank.test", "")
	l.apply(serviceAt("shop", "later.shop.test", "10.9.0.5", ""))
	m.awaitName("a host that comes", "later.shop.test", "10.9.0.5")

	if err := l.server.process.terminate(t); err != nil {
		t.Errorf("the server: %v", err)
	}
	calls("without a server", "later.shop.test")
	if err := m.process.terminate(t); err != nil {
		t.Errorf("the agent: %v", err)
	}
	m.run()
	calls("without a server, after a restart", "later.shop.test")
	m.awaitName("a name that the mesh has not, without a server", "printer.corp.test", "10.77.0.9")
	l.start()
	l.apply(serviceAt("shop", "last.shop.test", "10.9.0.6", ""))
	m.awaitName("a host that comes after the server", "last.shop.test", "10.9.0.6")
}
