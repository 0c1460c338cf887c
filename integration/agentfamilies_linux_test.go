package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
)

// serveCallers serves HTTP that tells each client its address, as the upstream of the echo.
func serveCallers(t testing.TB, l net.Listener) {
	t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(echo{Upstream: host, Header: r.Header})
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
}

// serveTCPCallers greets each client with its address, and echoes what it sends.
func serveTCPCallers(t testing.TB, l net.Listener) {
	t.Helper()
	serveTCP(t, l, func(c net.Conn) {
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		fmt.Fprintln(c, host)
		_, _ = io.Copy(c, c)
	})
}

// familyGroup is a group of machines, and services that they are: one without addresses of its own,
// which has some of Portolan's, and one with an endpoint for each address of the first machine.
const familyGroup = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec:
  metadata: {labels: {app: web}}
  template: {serviceAccount: web}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  resolution: STATIC
  location: MESH_INTERNAL
  ports:
  - {number: 80, name: http, protocol: HTTP, targetPort: 8080}
  - {number: 5432, name: tcp, protocol: TCP}
  - {number: 90, name: plain, targetPort: 7000}
  workloadSelector: {labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: each, namespace: shop}
spec:
  hosts: [each.shop.test]
  resolution: STATIC
  location: MESH_INTERNAL
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 5432, name: tcp, protocol: TCP}]
  endpoints: [$endpoints]
`

// TestMachinesOfEachFamily: machines with addresses of one family or of both, in both modes of
// capture, call each other by name over mutual TLS: HTTP, TCP whose server speaks first, and TCP of
// which nothing is declared. They also call hosts and ports that no service has, and addresses of one
// link. Under TPROXY the application sees the address of its client. What the file exempts passes by.
func TestMachinesOfEachFamily(t *testing.T) {
	t.Parallel()
	for _, f := range []families{onlyIPv4, onlyIPv6, bothFamilies} {
		for _, mode := range []capture.Mode{capture.Redirect, capture.TProxy} {
			t.Run(fmt.Sprintf("%s, %s", f, mode), func(t *testing.T) {
				t.Parallel()
				machinesOfFamily(t, f, mode)
			})
		}
	}
}

func machinesOfFamily(t *testing.T, f families, mode capture.Mode) {
	l := newLANOf(t, f)
	needTools(t, "curl")
	l.resolver("printer.corp.test", "10.77.0.9")
	web, client := l.machine("web"), l.machine("client")
	var endpoints []string
	for _, ip := range web.ips {
		endpoints = append(endpoints, fmt.Sprintf("{address: '%s', serviceAccount: web, labels: {security.istio.io/tlsMode: istio}}", ip))
	}
	l.apply(fill(familyGroup, "$endpoints", strings.Join(endpoints, ", ")))
	for _, m := range []*lanMachine{web, client} {
		m.asks("nameserver " + l.ip + "\n")
		m.linkLocal()
		if f != onlyIPv4 {
			serveCallers(t, m.listen("[::1]:8090"))
		}
		serveCallers(t, m.listen("127.0.0.1:8090"))
	}
	serveCallers(t, web.listen(":8080"))
	serveTCPCallers(t, web.listen(":5432"))
	serveTCPCallers(t, web.listen(":7000"))
	serveTCPCallers(t, web.listen(":7777"))
	serveTCPCallers(t, web.listen(":9100"))
	serveCallers(t, web.listen(":9101"))
	serveCallers(t, l.wire.listen(":9090"))
	serveTCPCallers(t, l.wire.listen(":9432"))
	serveTCPCallers(t, l.wire.listen(":9999"))

	web.join(l.invite("--group", "web"), "--interception", string(mode), "--ip", "eth0")
	web.change("capture: {}", "capture: {inbound: {exceptPorts: ['9100-9101']}}")
	client.join(l.invite("--service-account", "client"), "--interception", string(mode), "--ip", "eth0")
	client.change("capture: {}", "capture: {outbound: {exceptPorts: ['9999']}}")
	for _, m := range []*lanMachine{web, client} {
		m.run()
	}
	l.awaitEntries("the machine", web.ip)

	// What the application sees of clients whose Envoys called one of its machine's addresses.
	seen := func(callers []string) []string {
		if mode == capture.TProxy {
			return callers
		}
		return f.choose("127.0.0.6", "::6")
	}
	const clientID = "spiffe://cluster.local/ns/shop/sa/client"
	byName := func(host string, options ...string) (from string, err error) {
		got, err := client.program(append([]string{"curl", "-sS", "--max-time", "5", "http://" + host + "/"}, options...)...)
		if err != nil {
			return "", err
		}
		var e echo
		if err := json.Unmarshal([]byte(got), &e); err != nil {
			return "", fmt.Errorf("%w: %s", err, got)
		}
		if shown := e.Header.Get("X-Forwarded-Client-Cert"); !strings.Contains(shown, clientID) {
			return "", fmt.Errorf("it is asked by %q", shown)
		}
		return e.Upstream, nil
	}
	calls := map[string][]string{"": nil}
	for _, option := range f.choose("-4", "-6") {
		calls[option] = []string{option}
	}
	for name, options := range calls {
		eventually(t, "a request by name "+name, func() error {
			from, err := byName("web.shop.test", options...)
			if err == nil && from != seen(client.ips)[0] {
				err = fmt.Errorf("the application sees %s", from)
			}
			return err
		})
	}
	var from []string
	eventually(t, "each address of the machine is called", func() error {
		got, err := byName("each.shop.test")
		if err == nil && !slices.Contains(from, got) {
			from = append(from, got)
		}
		if want := seen(client.ips); err == nil && len(from) < len(want) {
			err = fmt.Errorf("the application sees %v, want %v", from, want)
		}
		return err
	})
	for i, get := range f.choose("ahostsv4", "ahostsv6") {
		given, err := client.program("getent", get, "web.shop.test")
		if err != nil {
			t.Fatalf("%s: %v", get, err)
		}
		vip, _, _ := strings.Cut(given, " ")
		awaitGreetingFrom(t, client.namespace, 0, net.JoinHostPort(vip, "5432"), seen(client.ips)[0])
		awaitEcho(t, client.namespace, net.JoinHostPort(vip, "90"), seen(client.ips)[0])
		at := func(ip, port string) string { return net.JoinHostPort(ip, port) }
		wire := f.choose("10.77.0.1", "fd77::1")[i]

		// To and from hosts that are not in the mesh.
		before := client.counted("cluster.PassthroughCluster;.upstream_cx_total")
		awaitServed(t, "an unknown host", client.namespace.http(t), "http://"+at(wire, "9090")+"/", "", client.ips[i])
		awaitGreetingFrom(t, client.namespace, 0, at(wire, "9432"), client.ips[i])
		passed := client.counted("cluster.PassthroughCluster;.upstream_cx_total")
		if passed < before+2 {
			t.Errorf("%s: %d connections to unknown hosts passed the Envoy", wire, passed-before)
		}
		awaitGreetingFrom(t, client.namespace, 0, at(wire, "9999"), client.ips[i])
		awaitEcho(t, l.wire, at(web.ips[i], "5432"), seen(f.choose("10.77.0.1", "fd77::1"))[i])
		awaitServed(t, "an outsider calls", l.wire.http(t), "http://"+at(web.ips[i], "8080")+"/", "", seen(f.choose("10.77.0.1", "fd77::1"))[i])
		in := web.counted("cluster.InboundPassthroughCluster;.upstream_cx_total")
		awaitEcho(t, l.wire, at(web.ips[i], "7777"), seen(f.choose("10.77.0.1", "fd77::1"))[i])
		if web.counted("cluster.InboundPassthroughCluster;.upstream_cx_total") == in {
			t.Errorf("%s: a port that no service has is not passed through", web.ips[i])
		}
		awaitGreetingFrom(t, l.wire, 0, at(web.ips[i], "9100"), wire)

		// The machine itself.
		awaitServed(t, "an application calls itself", web.namespace.http(t), "http://"+at(web.ips[i], "8080")+"/", "", web.ips[i])
		loopback := f.choose("127.0.0.1", "::1")[i]
		awaitServed(t, "loopback", client.namespace.http(t), "http://"+at(loopback, "8090")+"/", "", loopback)
		if now := client.counted("cluster.PassthroughCluster;.upstream_cx_total"); now != passed {
			t.Errorf("%s: %d connections passed the Envoy that are exempt", wire, now-passed)
		}
	}
	if f != onlyIPv4 {
		linkAddresses(t, web, client)
	}
	if f == bothFamilies {
		halfKnown(t, l.machine("half"), mode)
	}

	// Strictly, outsiders are refused in each family, and machines of the mesh go on.
	l.apply(peerMode("STRICT"))
	for _, ip := range web.ips {
		for _, port := range []string{"8080", "5432", "7777"} {
			eventually(t, "an outsider is refused at "+net.JoinHostPort(ip, port), func() error {
				if err := greets(l.wire, 0, net.JoinHostPort(ip, port), "GET / HTTP/1.1\r\nhost: a\r\n\r\n", "nothing"); err == nil || strings.Contains(err.Error(), "it is") {
					return fmt.Errorf("it gets an answer: %w", err)
				}
				return nil
			})
		}
	}
	for range 3 {
		if _, err := byName("each.shop.test"); err != nil {
			t.Errorf("STRICT: %v", err)
		}
	}
	l.expectNothingRejected()
}

// halfKnown: doctor warns of an address of the machine whose family the mesh does not know, and so is
// not captured, unless the file says that this is meant.
func halfKnown(t *testing.T, m *lanMachine, mode capture.Mode) {
	m.join(m.lan.invite("--service-account", "half"), "--interception", string(mode))
	warning := "the mesh does not know " + m.ips[1]
	if out := m.must("doctor"); !strings.Contains(out, warning) {
		t.Errorf("doctor: %s", out)
	}
	m.change("capture: {}", "capture: {ipv4: true}")
	if out := m.must("doctor"); strings.Contains(out, warning) {
		t.Errorf("doctor where only IPv4 is to be captured: %s", out)
	}
}

// linkAddresses: connections to addresses of one link leave a machine without its sidecar. None come in
// by it, but for those to exempt ports.
func linkAddresses(t *testing.T, web, client *lanMachine) {
	ask := func(n *namespace, ip, device, port string) (string, error) {
		return n.program("curl", "-sS", "--max-time", "2", "http://["+ip+"%25"+device+"]:"+port+"/")
	}
	for what, call := range map[string]func() (string, error){
		"the wire is called":             func() (string, error) { return ask(client.namespace, wireLink, "eth0", "9090") },
		"a machine calls itself":         func() (string, error) { return ask(web.namespace, web.link(), "eth0", "8080") },
		"an exempt port is called there": func() (string, error) { return ask(web.lan.wire, web.link(), "lan", "9101") },
	} {
		eventually(t, what+" at an address of one link", func() error {
			got, err := call()
			if err == nil && !strings.Contains(got, `"fe80:`) {
				err = errors.New(got)
			}
			return err
		})
	}
	for _, port := range []string{"8080", "7777"} {
		if got, err := ask(web.lan.wire, web.link(), "lan", port); err == nil || !strings.Contains(err.Error(), "curl: (7)") {
			t.Errorf("port %s at an address of one link: %q, %v", port, got, err)
		}
	}
}

// TestIPv6MachineWithoutCapture: on a machine with IPv6 alone, applications call a service at ::1, where
// its Envoy listens.
func TestIPv6MachineWithoutCapture(t *testing.T) {
	t.Parallel()
	l := newLANOf(t, onlyIPv6)
	l.apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: shop}
spec:
  hosts: [far.shop.test]
  resolution: STATIC
  ports: [{number: 8180, name: http, protocol: HTTP, targetPort: 9080}]
  endpoints: [{address: 'fd77::1'}]
`)
	serveCallers(t, l.wire.listen(":9080"))
	m := l.machine("web")
	m.join(l.invite("--service-account", "web"))
	m.run()
	awaitServed(t, "the service", m.namespace.http(t), "http://[::1]:8180/", "far.shop.test", m.ip)
	l.expectNothingRejected()
}

// wireLink is the address of the wire that machines reach on their link alone.
const wireLink = "fe80::77:1"

// link is such an address of the machine.
func (m *lanMachine) link() string { return "fe80::" + m.ip[strings.LastIndexAny(m.ip, ".:")+1:] }

// linkLocal gives the machine and the wire these addresses.
func (m *lanMachine) linkLocal() {
	if m.lan.families != onlyIPv4 {
		m.namespace.ip("-6", "addr", "replace", m.link()+"/64", "dev", "eth0", "nodad")
		m.lan.wire.ip("-6", "addr", "replace", wireLink+"/64", "dev", "lan", "nodad")
	}
}

// counted returns a counter of the machine's Envoy.
func (m *lanMachine) counted(name string) (n int) {
	m.t.Helper()
	got, err := m.program("curl", "-sS", "--max-time", "5", "http://127.0.0.1:15000/stats?usedonly&filter="+url.QueryEscape(strings.Split(name, ";")[0]))
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(got) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			_, _ = fmt.Sscan(value, &n)
		}
	}
	return n
}
