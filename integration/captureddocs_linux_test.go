package integration

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// sidecarUser is the user of the sidecar in docs/tasks/capture-traffic.md.
const sidecarUser = 1337

// capturePage is the page about traffic capture.
const capturePage = "../docs/tasks/capture-traffic.md"

// documented returns the code blocks of capturePage that begin with a word, concatenated.
func documented(t testing.TB, word string) string {
	t.Helper()
	text, err := os.ReadFile(capturePage)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	inside := false
	for line := range strings.Lines(string(text)) {
		code, isCode := strings.CutPrefix(line, "    ")
		if inside = isCode && (inside || strings.HasPrefix(code, word+" ")); inside {
			out.WriteString(code)
		}
	}
	if out.Len() == 0 {
		t.Fatalf("%s has no code that begins with %q", capturePage, word)
	}
	return out.String()
}

// TestEnvoyCapturesByTheDocumentedRules: with the rules of the documentation in force from the
// start, a sidecar gets its configuration through a tunnel to the control plane. Traffic of
// both families passes it in both directions. Control plane and workload have the addresses of
// the documentation.
func TestEnvoyCapturesByTheDocumentedRules(t *testing.T) {
	needEnvoy(t)
	needNamespaces(t)
	workload, peer := newNamespace(t, "workload"), newNamespace(t, "peer")
	workload.ip("link", "add", "w", "type", "veth", "peer", "name", "p", "netns", peer.name)
	for _, a := range []struct {
		n         *namespace
		device    string
		addresses []string
	}{
		{workload, "w", []string{"10.0.0.1/24", "fd00::1/64"}},
		{peer, "p", []string{"10.0.0.2/24", "fd00::2/64", "192.0.2.10/32", "2001:db8::10/128"}},
	} {
		a.n.up(a.device, a.addresses...)
	}
	workload.ip("route", "add", "default", "via", "10.0.0.2")
	workload.ip("-6", "route", "add", "default", "via", "fd00::2")
	workload.nft(documented(t, "table"))
	for command := range strings.Lines(documented(t, "ip")) {
		workload.ip(strings.Fields(command)[1:]...)
	}

	serveUpstream(t, "peer-http", peer.listen("10.0.0.2:9080"))
	serveTCPUpstream(t, "peer-tcp", peer.listen("10.0.0.2:9432"))
	serveTCPUpstream(t, "peer-unknown", peer.listen("[fd00::2]:7777"))
	serveUpstream(t, "app-http", workload.listen(":8080"))
	serveTCPUpstream(t, "app-tcp", workload.listen(":5432"))
	serveTCPUpstream(t, "app-ssh", workload.listen(":22"))

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
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 5432, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.1}, {address: 'fd00::1'}]
`)
	// It stands for ssh -NL 15010:127.0.0.1:15010 cp-1 of docs/tasks/capture-traffic.md: a user other
	// than the sidecar's opens the tunnel, and port 22 of the control plane is the other end.
	passOn(t, peer.listen("192.0.2.10:22"), func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", s.xds) })
	passOn(t, workload.listen("127.0.0.1:15010"), func(ctx context.Context) (net.Conn, error) { return workload.dial(ctx, "192.0.2.10:22", 0) })
	serveTCPUpstream(t, "control-plane", peer.listen("[2001:db8::10]:22"))

	client := s.startEnvoy(envoyOptions{
		kind: "sidecar", name: "client", interception: "REDIRECT", variant: protocol.Delta, ip: "10.0.0.1,fd00::1",
		in: asUser{workload, sidecarUser}, xds: "127.0.0.1:15010",
	})
	client.awaitWarm()

	out, in := workload.http(t), peer.http(t)
	awaitServed(t, "HTTP by its host", out, "http://10.1.1.1/", "web.shop.test", "peer-http")
	awaitServed(t, "HTTP by its host over IPv6", out, "http://[fd00:1::1]/", "web.shop.test", "peer-http")
	awaitServed(t, "HTTP at its IPv6 address", out, "http://[fd00:9::1]/", "", "peer-http")
	awaitGreetingFrom(t, workload, 0, "10.9.0.1:5432", "peer-tcp")
	awaitGreetingFrom(t, workload, 0, "[fd00:9::1]:5432", "peer-tcp")
	awaitEcho(t, workload, "[fd00::2]:7777", "peer-unknown")
	for _, address := range []string{"10.0.0.1", "[fd00::1]"} {
		awaitServed(t, "HTTP that comes in", in, "http://"+address+":8080/", "", "app-http")
		awaitGreetingFrom(t, peer, 0, address+":5432", "app-tcp")
	}
	client.expectPassed("http.inbound_0.0.0.0_8080;.downstream_rq_total", "cluster.inbound|5432||;.upstream_cx_total",
		"cluster.outbound|5432||web.shop.test;.upstream_cx_total", "cluster.PassthroughCluster;.upstream_cx_total")

	// Traffic that must not depend on the sidecar continues without it.
	client.process.kill()
	awaitGreetingFrom(t, workload, 0, "[2001:db8::10]:22", "control-plane")
	awaitGreetingFrom(t, peer, 0, "10.0.0.1:22", "app-ssh")
	awaitGreetingFrom(t, peer, 0, "[fd00::1]:22", "app-ssh")
	s.expectNothingRejected()
}
