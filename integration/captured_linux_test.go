package integration

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// captureMark is the packet mark of clients whose connections are captured.
const captureMark = 77

// captureBoth redirects a machine's traffic to its sidecar: outgoing connections of clients go to
// virtualOutbound, and incoming ones to virtualInbound.
const captureBoth = `
table ip portolan {
	chain output {
		type nat hook output priority -100;
		meta mark 77 meta l4proto tcp redirect to :15001
	}
	chain prerouting {
		type nat hook prerouting priority -100;
		meta l4proto tcp redirect to :15006
	}
}
`

// TestEnvoyCapturesTraffic: in separate networks, a workload's connections reach their
// destinations though no client is configured for a proxy. Incoming traffic passes the
// workload's proxy.
func TestEnvoyCapturesTraffic(t *testing.T) {
	needEnvoy(t)
	needNamespaces(t)
	workload, peer := newNamespace(t, "workload"), newNamespace(t, "peer")
	cable(workload, peer)
	serveUpstream(t, "peer-http", peer.listen("10.0.0.2:9080"))
	serveTCPUpstream(t, "peer-tcp", peer.listen("10.0.0.2:9432"))
	serveTCPUpstream(t, "peer-other", peer.listen("10.0.0.2:9433"))
	serveUpstream(t, "app-http", workload.listen("0.0.0.0:8080"))
	serveTCPUpstream(t, "app-tcp", workload.listen("0.0.0.0:5432"))
	serveTCPUpstream(t, "app-unknown", workload.listen("0.0.0.0:7777"))

	s := startServer(t, serverOptions{})
	s.apply(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  resolution: STATIC
  addresses: [10.9.0.1]
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.2, ports: {http: 9080}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ledger, namespace: shop}
spec:
  hosts: [ledger.shop.test]
  resolution: STATIC
  ports: [{number: 5432, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.2, ports: {tcp: 9432}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other, namespace: shop}
spec:
  hosts: [other.shop.test]
  resolution: STATIC
  ports: [{number: 5432, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.2, ports: {tcp: 9433}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: raw, namespace: shop}
spec:
  hosts: [raw.shop.test]
  resolution: STATIC
  addresses: [10.9.0.2]
  ports: [{number: 81, name: plain}]
  endpoints: [{address: 10.0.0.2, ports: {plain: 9080}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: app, namespace: shop}
spec:
  hosts: [app.shop.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 5432, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.1}]
`)
	workload.nft(captureBoth)
	client := s.startEnvoy(envoyOptions{
		kind: "sidecar", name: "client", interception: "REDIRECT", variant: protocol.Delta,
		in: workload, xds: startSocketRelay(t, s.xds),
	})
	client.awaitWarm()

	out, in := workload.marked(t, captureMark), peer.http(t)
	awaitServed(t, "HTTP by its host", out, "http://10.1.1.1/", "web.shop.test", "peer-http")
	awaitServed(t, "HTTP at its address", out, "http://10.9.0.1/", "", "peer-http")
	awaitServed(t, "HTTP found on a port that declares nothing", out, "http://10.9.0.2:81/", "", "peer-http")
	awaitServed(t, "HTTP of which nothing is known", out, "http://10.0.0.2:9080/", "", "peer-http")
	awaitGreetingFrom(t, workload, captureMark, s.givenTo("ledger")+":5432", "peer-tcp")
	awaitGreetingFrom(t, workload, captureMark, s.givenTo("other")+":5432", "peer-other")
	awaitGreetingFrom(t, workload, captureMark, "10.0.0.2:9433", "peer-other")

	awaitServed(t, "HTTP that comes in", in, "http://10.0.0.1:8080/", "", "app-http")
	awaitGreetingFrom(t, peer, 0, "10.0.0.1:5432", "app-tcp")
	// No service declares this port: the proxy waits for the client's first bytes.
	awaitEcho(t, peer, "10.0.0.1:7777", "app-unknown")
	for _, c := range []struct{ from, to, host, want string }{
		{"client", "10.1.1.1:80", "web.shop.test", "Forwarded 10.0.0.2:9080"},
		{"client", "web.shop.test:80", "", "Forwarded 10.0.0.2:9080"},
		{"client", "10.9.0.2:81", "", "Forwarded 10.0.0.2:9080"},
		{"client", "10.0.0.2:9080", "", "Passed 10.0.0.2:9080"},
		{"client", "ledger.shop.test:5432", "", "Forwarded 10.0.0.2:9432"},
		{"client", s.givenTo("other") + ":5432", "", "Forwarded 10.0.0.2:9433"},
		{"client", "10.0.0.2:9433", "", "Passed 10.0.0.2:9433"},
		{"10.0.0.2", "app.shop.test:80", "", "Forwarded 10.0.0.1:8080 by inbound|8080||"},
		{"10.0.0.2", "app.shop.test:5432", "", "Forwarded 10.0.0.1:5432 by inbound|5432||"},
	} {
		e, err := s.explain(c.from, c.to, request{host: c.host})
		if err != nil || len(e.Destinations) != 1 {
			t.Fatalf("%s to %s: %v %+v", c.from, c.to, err, e)
		}
		d := e.Destinations[0]
		got := e.Outcome + " " + strings.Join(d.Endpoints, ",")
		for _, in := range d.Inbound {
			got += " by " + in.Cluster
		}
		if got != c.want {
			t.Errorf("explained of %s to %s %s is %s, want %s", c.from, c.to, c.host, got, c.want)
		}
	}
	client.expectPassed("http.inbound_0.0.0.0_8080;.downstream_rq_total", "cluster.inbound|5432||;.upstream_cx_total",
		"cluster.InboundPassthroughCluster;.upstream_cx_total", "cluster.PassthroughCluster;.upstream_cx_total")
	s.expectNothingRejected()
	client.expectNothingRejected()
}

// TestEnvoyCapturesTrafficForAnEgressProxy: captured connections to hosts and addresses of no
// service go to the egress proxy of the Sidecar, also TCP. Without an egress proxy they pass
// through.
func TestEnvoyCapturesTrafficForAnEgressProxy(t *testing.T) {
	needEnvoy(t)
	needNamespaces(t)
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		workload, peer := newNamespace(t, "workload"), newNamespace(t, "peer")
		cable(workload, peer)
		serveTCPUpstream(t, "far", peer.listen("10.0.0.2:9433"))
		serveUpstream(t, "far-http", peer.listen("10.0.0.2:9080"))
		serveTCPUpstream(t, "ledger", peer.listen("10.0.0.2:9432"))
		serveTCPUpstream(t, "egress", peer.listen("10.0.0.2:9999"))
		serveUpstream(t, "egress-http", peer.listen("10.0.0.2:9998"))
		s := startServer(t, serverOptions{})
		entry := func(name string, port int, protocol, more string) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: p, protocol: $protocol}]
  $more
`, "$name", name, "$port", port, "$protocol", protocol, "$more", more)
		}
		to := func(service string) string {
			return sidecarOf(fill("{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: $service.shop.test, port: {number: 3128}}}}", "$service", service))
		}
		s.apply(entry("ledger", 5432, "TCP", "addresses: [10.9.0.1]\n  endpoints: [{address: 10.0.0.2, ports: {p: 9432}}]"),
			entry("egress", 3128, "TCP", "addresses: [10.9.0.2]\n  endpoints: [{address: 10.0.0.2, ports: {p: 9999}}]"),
			entry("egress-http", 3128, "HTTP", "addresses: [10.9.0.3]\n  endpoints: [{address: 10.0.0.2, ports: {p: 9998}}]"), to("egress"))
		workload.nft(captureBoth)
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", interception: "REDIRECT", variant: v, in: workload, xds: startSocketRelay(t, s.xds)})
		client.awaitWarm()
		awaitGreetingFrom(t, workload, captureMark, "10.0.0.2:9433", "egress")
		awaitGreetingFrom(t, workload, captureMark, "10.7.7.7:4444", "egress") // an address of no machine
		awaitGreetingFrom(t, workload, captureMark, "10.9.0.1:5432", "ledger")

		s.awaitSynced(s.apply(to("egress-http")), "client")
		awaitServed(t, "HTTP of a host that no service has", workload.marked(t, captureMark), "http://10.0.0.2:9080/", "unknown.test", "egress-http")

		s.awaitSynced(s.apply(sidecarOf("{outboundTrafficPolicy: {mode: ALLOW_ANY}}")), "client")
		awaitGreetingFrom(t, workload, captureMark, "10.0.0.2:9433", "far")
		awaitServed(t, "HTTP where it was meant to go", workload.marked(t, captureMark), "http://10.0.0.2:9080/", "unknown.test", "far-http")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// cable connects two networks. The workload has 10.0.0.1. The peer has 10.0.0.2, the default
// gateway.
func cable(workload, peer *namespace) {
	workload.ip("link", "add", "w", "type", "veth", "peer", "name", "p", "netns", peer.name)
	for n, address := range map[*namespace]string{workload: "10.0.0.1/24", peer: "10.0.0.2/24"} {
		device := map[*namespace]string{workload: "w", peer: "p"}[n]
		n.ip("addr", "add", address, "dev", device)
		n.ip("link", "set", device, "up")
	}
	workload.ip("route", "add", "default", "via", "10.0.0.2")
}

// awaitServed waits until an upstream answers a request to a URL. If host is not empty, it is
// the request's host.
func awaitServed(t testing.TB, what string, client *http.Client, url, host, want string) {
	t.Helper()
	eventually(t, what, func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if host != "" {
			r.Host = host
		}
		got, err := answer(client, r)
		if err == nil && got.String() != want {
			err = fmt.Errorf("%s answers: %s", got, strings.TrimSpace(got.body))
		}
		return err
	})
}

// awaitGreetingFrom waits until a connection from a namespace gets the greeting of an upstream,
// which speaks first.
func awaitGreetingFrom(t testing.TB, n *namespace, mark int, address, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s", address, want), func() error { return greets(n, mark, address, "", want) })
}

// awaitEcho is awaitGreetingFrom for a client that speaks first.
func awaitEcho(t testing.TB, n *namespace, address, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s", address, want), func() error { return greets(n, 0, address, "\x01hello\n", want) })
}

func greets(n *namespace, mark int, address, first, want string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := n.dial(ctx, address, mark)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(first)); err != nil {
		return err
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && got != want+"\n" {
		err = fmt.Errorf("it is %q", got)
	}
	return err
}

// expectPassed fails if one of the counters is 0, so that the traffic did not pass the proxy.
func (e *envoy) expectPassed(counters ...string) {
	e.t.Helper()
	all, err := e.stats("")
	if err != nil {
		e.t.Fatal(err)
	}
	for _, name := range counters {
		if all[name] == 0 {
			e.t.Errorf("%s is %d: that traffic did not pass the proxy", name, all[name])
		}
	}
}
