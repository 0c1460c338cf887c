package integration

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// firewall returns the packet filter of a namespace.
func (n *namespace) firewall() capture.Firewall {
	return capture.Firewall{Applied: filepath.Join(n.t.TempDir(), "capture.nft"), In: n.command()}
}

// ruleset returns all rules of the packet filter and of routing.
func (n *namespace) ruleset() string {
	n.t.Helper()
	var out strings.Builder
	for _, command := range []string{"nft -s list ruleset", "ip -4 rule list", "ip -6 rule list", "ip -4 route show table all", "ip -6 route show table all"} {
		c := exec.Command(n.command()[0], append(n.command()[1:], strings.Fields(command)...)...)
		var problem bytes.Buffer
		c.Stderr = &problem
		text, err := c.Output()
		if err != nil {
			n.t.Fatalf("%s: %v: %s", command, err, problem.String())
		}
		fmt.Fprintf(&out, "# %s\n%s", command, text)
	}
	return out.String()
}

// TestEnvoyCapturesByTheAgentsRules: with the agent's rules, traffic of both families goes through
// the sidecar in both directions. Applications call themselves, and a captured service that is on
// their own machine. What the machine forwards, ssh, and what is exempt pass by.
func TestEnvoyCapturesByTheAgentsRules(t *testing.T) {
	needEnvoy(t)
	needNamespaces(t)
	for _, mode := range []capture.Mode{capture.Redirect, capture.TProxy} {
		t.Run(string(mode), func(t *testing.T) { capturedByTheAgentsRules(t, mode) })
	}
}

func capturedByTheAgentsRules(t *testing.T, mode capture.Mode) {
	workload, peer, far := newNamespace(t, "workload"), newNamespace(t, "peer"), newNamespace(t, "far")
	workload.ip("link", "add", "w", "type", "veth", "peer", "name", "p", "netns", peer.name)
	workload.ip("link", "add", "c", "type", "veth", "peer", "name", "f", "netns", far.name)
	for _, a := range []struct {
		n         *namespace
		device    string
		addresses []string
	}{
		{workload, "w", []string{"10.0.0.1/24", "fd00::1/64"}},
		{workload, "c", []string{"10.5.0.1/24"}},
		{workload, "lo", []string{"::6/128"}},
		{peer, "p", []string{"10.0.0.2/24", "fd00::2/64"}},
		{far, "f", []string{"10.5.0.2/24"}},
	} {
		a.n.up(a.device, a.addresses...)
	}
	workload.ip("route", "add", "default", "via", "10.0.0.2")
	workload.ip("-6", "route", "add", "default", "via", "fd00::2")
	far.ip("route", "add", "default", "via", "10.5.0.1")
	peer.ip("route", "add", "10.5.0.0/24", "via", "10.0.0.1")
	if err := run0(append(workload.command(), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")...); err != nil {
		t.Fatal(err)
	}
	serveUpstream(t, "peer-http", peer.listen(":9080"))
	serveTCPUpstream(t, "peer-tcp", peer.listen("10.0.0.2:9432"))
	serveTCPUpstream(t, "peer-exempt", peer.listen(":9999"))
	serveUpstream(t, "far-http", far.listen("10.5.0.2:9080"))
	serveUpstream(t, "app-http", workload.listen(":8080"))
	serveTCPUpstream(t, "app-tcp", workload.listen(":5432"))
	serveTCPUpstream(t, "app-ssh", workload.listen(":22"))
	serveCallers(t, workload.listen(":8081"))

	s := startServer(t, serverOptions{})
	s.apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  resolution: STATIC
  addresses: [10.9.0.1, 'fd00:9::1']
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 5432, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.2, ports: {http: 9080, tcp: 9432}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: app, namespace: shop}
spec:
  hosts: [app.shop.test]
  resolution: STATIC
  addresses: [10.9.0.2]
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 5432, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.1}, {address: 'fd00::1'}]
`)
	rules := capture.Rules{Mode: mode, ProxyUser: fmt.Sprint(sidecarUser), Outbound: capture.Outbound{ExceptPorts: []string{"9999"}}}
	filter := workload.firewall()
	if err := filter.Apply(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	proxy := s.startEnvoy(envoyOptions{
		kind: "sidecar", name: "client", interception: string(mode), variant: protocol.Delta, ip: "10.0.0.1,fd00::1",
		in: asUser{workload, sidecarUser}, xds: startSocketRelay(t, s.xds),
	})
	proxy.awaitWarm()

	out, in := workload.http(t), peer.http(t)
	awaitServed(t, "HTTP by its host", out, "http://10.1.1.1/", "web.shop.test", "peer-http")
	awaitServed(t, "HTTP at its IPv6 address", out, "http://[fd00:9::1]/", "", "peer-http")
	awaitGreetingFrom(t, workload, 0, "10.9.0.1:5432", "peer-tcp")
	awaitGreetingFrom(t, workload, 0, "[fd00:9::1]:5432", "peer-tcp")
	for _, address := range []string{"10.0.0.1", "[fd00::1]"} {
		awaitServed(t, "HTTP that comes in", in, "http://"+address+":8080/", "", "app-http")
		awaitGreetingFrom(t, peer, 0, address+":5432", "app-tcp")
		awaitServed(t, "an application calls itself", out, "http://"+address+":8080/", "", "app-http")
	}
	for address, want := range map[string]map[capture.Mode]string{
		"10.0.0.1": {capture.Redirect: "127.0.0.6", capture.TProxy: "10.0.0.2"}, "[fd00::1]": {capture.Redirect: "::6", capture.TProxy: "fd00::2"},
	} {
		awaitServed(t, "the client as the application sees it", in, "http://"+address+":8081/", "", want[mode])
	}
	before := proxy.requestsIn()
	awaitServed(t, "a captured service of the same machine", out, "http://10.9.0.2:8080/", "", "app-http")
	if after := proxy.requestsIn(); after == before {
		t.Error("a request to a captured service of the same machine did not come in through the sidecar")
	}
	awaitServed(t, "what the machine forwards", far.http(t), "http://10.0.0.2:9080/", "", "peer-http")
	awaitServed(t, "what the machine forwards the other way", in, "http://10.5.0.2:9080/", "", "far-http")
	proxy.expectPassed("http.inbound_0.0.0.0_8080;.downstream_rq_total", "cluster.inbound|5432||;.upstream_cx_total", "cluster.outbound|5432||web.shop.test;.upstream_cx_total")

	// Without the sidecar, what is captured fails, and what is exempt goes on.
	proxy.process.kill()
	for _, address := range []string{"10.0.0.", "[fd00::"} {
		end := strings.Repeat("]", strings.Count(address, "["))
		awaitGreetingFrom(t, peer, 0, address+"1"+end+":22", "app-ssh")
		awaitGreetingFrom(t, workload, 0, address+"2"+end+":9999", "peer-exempt")
	}
	awaitServed(t, "what the machine forwards without the sidecar", far.http(t), "http://10.0.0.2:9080/", "", "peer-http")
	for what, client := range map[string]*http.Client{
		"http://10.0.0.2:9080/": out, "http://10.0.0.1:8080/": in, "http://[fd00::2]:9080/": out, "http://[fd00::1]:8080/": in,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, what, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := answer(client, r); err == nil {
			t.Errorf("%s is served without the sidecar: %s", what, got)
		}
	}
	s.expectNothingRejected()
}

// requestsIn counts the requests that came in for port 8080.
func (e *envoy) requestsIn() int {
	e.t.Helper()
	const name = "http.inbound_0.0.0.0_8080;.downstream_rq_total"
	stats, err := e.stats("")
	if err != nil {
		e.t.Fatal(err)
	}
	return stats[name]
}

// TestCaptureIsReplacedCheckedAndRemoved: rules come, change and go without a trace. Those of
// others, as of Docker, stay. What a reload of the machine's firewall or a
// person does to them is seen, and mended by Apply.
func TestCaptureIsReplacedCheckedAndRemoved(t *testing.T) {
	needNamespaces(t)
	n := newNamespace(t, "machine")
	n.nft(`
table ip nat {
	chain DOCKER {
		tcp dport 8080 dnat to 172.17.0.2:80
	}
	chain PREROUTING { type nat hook prerouting priority -100; fib daddr type local jump DOCKER; }
	chain OUTPUT { type nat hook output priority -100; ip daddr != 127.0.0.0/8 fib daddr type local jump DOCKER; }
	chain POSTROUTING { type nat hook postrouting priority 100; ip saddr 172.17.0.0/16 masquerade; }
}
table inet firewalld {
	chain filter_INPUT { type filter hook input priority 10; ct state established accept; }
}
`)
	ctx, filter := t.Context(), n.firewall()
	foreign := n.ruleset()
	redirect := capture.Rules{Mode: capture.Redirect, ProxyUser: "1337"}
	transparent := capture.Rules{Mode: capture.TProxy, ProxyUser: "1337", IPv4: true, DNS: capture.DNS{Port: 15053, Resolvers: []string{"127.0.0.53"}}}
	expect := func(r capture.Rules, want capture.State) {
		t.Helper()
		if got, err := filter.Check(ctx, r); err != nil || got != want {
			t.Errorf("the rules are %s, want %s: %v", got, want, err)
		}
	}
	apply := func(r capture.Rules) string {
		t.Helper()
		if err := filter.Apply(ctx, r); err != nil {
			t.Fatal(err)
		}
		expect(r, capture.InForce)
		return n.ruleset()
	}
	expect(redirect, capture.Absent)
	first := apply(redirect)
	if again := apply(redirect); again != first {
		t.Errorf("the same rules again make others (-first +again):\n%s", cmp.Diff(first, again))
	}
	expect(transparent, capture.Other)
	second := apply(transparent)
	n.ip("-4", "rule", "del", "fwmark", "1337", "lookup", "133")
	expect(transparent, capture.Partial)
	if mended := apply(transparent); mended != second {
		t.Errorf("mended rules are others (-before +mended):\n%s", cmp.Diff(second, mended))
	}
	n.nft("add rule inet portolan output tcp dport 7777 drop")
	expect(transparent, capture.Other)
	if mended := apply(transparent); mended != second {
		t.Errorf("mended rules are others (-before +mended):\n%s", cmp.Diff(second, mended))
	}
	if back := apply(redirect); back != first {
		t.Errorf("the first rules are others after those for TPROXY (-first +back):\n%s", cmp.Diff(first, back))
	}
	n.nft("flush ruleset") // as a reload of nftables.service does
	expect(redirect, capture.Absent)
	apply(redirect)
	n.nft("flush ruleset")
	n.nft(tableOf(foreign))
	apply(transparent)
	if err := filter.Apply(ctx, capture.Rules{Mode: "none"}); err == nil || n.ruleset() == foreign {
		t.Errorf("wrong rules changed something: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := filter.Apply(canceled, redirect); err == nil {
		t.Error("rules were applied though the caller gave up")
	}
	expect(transparent, capture.InForce)
	for range 2 {
		if err := filter.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		if left := n.ruleset(); left != foreign {
			t.Errorf("after the removal something is different (-before +after):\n%s", cmp.Diff(foreign, left))
		}
	}
}

// tableOf returns the tables of a ruleset.
func tableOf(ruleset string) string {
	_, tables, _ := strings.Cut(ruleset, "\n")
	tables, _, _ = strings.Cut(tables, "# ip -4 rule list")
	return tables
}

// TestAgentCaptures: the commands of the agent print the rules of its file, put them in force, say
// whether they are, and take them away.
func TestAgentCaptures(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	n, dir := newNamespace(t, "machine"), t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	mode := "REDIRECT"
	write := func(rules string) {
		t.Helper()
		text := fill(`
api: ["https://mesh.example:15080"]
xds: ["mesh.example:15012"]
proxy: {type: sidecar, name: vm, namespace: shop, serviceAccount: web, ips: [10.0.0.1], interception: $mode}
state: $dir
run: $dir
`, "$dir", dir, "$mode", mode) + rules
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command string, code int, want string) {
		t.Helper()
		c := exec.Command(n.command()[0], append(n.command()[1:], needAgent(t), "capture", command, "--config", file)...)
		out, err := c.CombinedOutput()
		if err != nil && c.ProcessState == nil {
			t.Fatal(err)
		}
		if c.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
			t.Errorf("capture %s ends with %d, want %d with %q:\n%s", command, c.ProcessState.ExitCode(), code, want, out)
		}
	}
	before := n.ruleset()
	write("")
	run("print", 65, "capture: is missing")
	write("capture: {proxyUser: '', outbound: {ports: [http]}}\n")
	run("apply", 65, "capture.outbound.ports")
	write("capture: {proxyUser: '1337', outbound: {exceptPorts: ['9999']}}\n")
	run("print", 0, "tcp dport { 9999 } return")
	run("check", 65, "The rules are absent.")
	run("apply", 0, "")
	run("check", 0, "The rules are in force.")
	mode = "TPROXY"
	write("capture: {proxyUser: '1337'}\n")
	run("check", 65, "The rules are other.")
	run("apply", 0, "")
	run("check", 0, "The rules are in force.")
	write("capture: {}\nnonsense\n") // nothing must keep the rules in force
	run("remove", 0, "")
	write("capture: {}\n")
	run("check", 65, "The rules are absent.")
	if left := n.ruleset(); left != before {
		t.Errorf("something is left (-before +after):\n%s", cmp.Diff(before, left))
	}
}
