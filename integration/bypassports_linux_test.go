package integration

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/xds/simulate/pathtest"
)

// TestEnvoyBypassPaths: at each level of pathNormalization, a DENY of a path holds against the odd
// paths that are this path there, and a gateway in front says what the sidecar says.
func TestEnvoyBypassPaths(t *testing.T) {
	t.Parallel()
	for _, level := range pathtest.Levels() {
		t.Run(level.String(), func(t *testing.T) {
			s := newBypassScene(t, "pathNormalization: {normalization: "+level.String()+"}")
			documents := authorization("path", `{action: DENY, rules: [{to: [{operation: {paths: [/admin, /admin/*]}}]}]}`)
			s.awaitSynced(s.apply(documents), "app", "edge")
			for _, at := range everywhere() {
				s.await(t, "an ordinary path", at, get("/admin"), "denied")
			}
			var work errgroup.Group
			work.SetLimit(16)
			for _, c := range pathtest.Cases() {
				seen, _, _ := strings.Cut(c.At(level), "?")
				refused := seen == "/admin" || strings.HasPrefix(seen, "/admin/")
				for _, at := range everywhere() {
					work.Go(func() error {
						got, err := s.send(at, get(c.Path))
						if err != nil || (got == "denied") != refused || seen == pathtest.Refused && got != "400" {
							t.Errorf("%q, which is %q, by %s: %s, %v", c.Path, seen, at, got, err)
						}
						return nil
					})
				}
			}
			_ = work.Wait()
		})
	}
}

// TestEnvoyBypassTrustedProxies: behind one trusted proxy, a gateway takes the address that this
// proxy wrote, and nothing that stands before it.
func TestEnvoyBypassTrustedProxies(t *testing.T) {
	t.Parallel()
	s := newBypassScene(t, "defaultConfig: {gatewayTopology: {numTrustedProxies: 1}}")
	const secret = "/secret"
	s.try(t, bypass{
		name:      "one trusted proxy",
		documents: authorization("from", `{selector: {matchLabels: {app: edge}}, rules: [{from: [{source: {remoteIpBlocks: [192.0.2.0/24]}}]}, {to: [{operation: {paths: [/open]}}]}]}`),
		allowed:   get("/open"), refused: get(secret), entrances: ours(gateway),
		attempts: []attempt{
			{name: "what the proxy wrote", knock: get(secret, "x-forwarded-for: 192.0.2.1"), want: "http", why: "it is the address of the client"},
			{name: "what the proxy wrote behind another", knock: get(secret, "x-forwarded-for: 198.51.100.1, 192.0.2.1"), want: "http", why: "it is the address of the client"},
			{name: "what the client wrote before", knock: get(secret, "x-forwarded-for: 192.0.2.1, 198.51.100.1")},
			{name: "what the client wrote in a header of its own", knock: get(secret, "x-forwarded-for: 192.0.2.1", "x-forwarded-for: 198.51.100.1")},
			{name: "what the client wrote twice", knock: get(secret, "x-forwarded-for: 192.0.2.1, 192.0.2.1, 198.51.100.1")},
			{name: "no address", knock: get(secret, "x-forwarded-for: 192.0.2.1, unknown")},
			{name: "an address with a port", knock: get(secret, "x-forwarded-for: 192.0.2.1, 198.51.100.1:80")},
			{name: "an address of IPv6 for one of IPv4", knock: get(secret, "x-forwarded-for: 192.0.2.1, ::ffff:198.51.100.1")},
			{name: "an empty end", knock: get(secret, "x-forwarded-for: 192.0.2.1,")},
		},
	})
}

// TestEnvoyBypassPorts: a workload that takes the gateway alone takes it on every port, whichever
// service it belongs to, and on ports of no service.
func TestEnvoyBypassPorts(t *testing.T) {
	t.Parallel()
	s := newBypassScene(t, "")
	serveUpstream(t, "http", s.workload.listen("0.0.0.0:9999")) // no service has the port
	const shared = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: beside, namespace: shop}
spec:
  hosts: [beside.shop.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 9998}]
  endpoints: [{address: 10.0.0.1, labels: {app: beside}}]
`
	serveUpstream(t, "http", s.workload.listen("0.0.0.0:9998"))
	s.apply(shared)
	// Nothing leads around the policy: neither a port of no service, nor that of another service at
	// the address, nor the ports of the sidecar itself.
	only := authorization("edge", `{selector: {matchLabels: {app: app}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/edge]}}]}]}`)
	s.awaitSynced(s.apply(only), "app", "edge")
	for _, c := range []struct {
		port int
		at   entrance
		want string
	}{
		{8080, gateway, "http"}, {8080, plain, "denied"}, {8080, mutual, "denied"}, {8080, other, "denied"},
		{9998, plain, "denied"}, {9998, other, "denied"},
		{9999, plain, "denied"}, {9999, other, "denied"},
		{5432, plain, "closed"}, {5432, other, "closed"},
		{15000, plain, "denied"}, {15001, plain, "denied"}, {15006, plain, "closed"},
	} {
		s.port = c.port
		s.await(t, fmt.Sprintf("port %d", c.port), c.at, get("/"), c.want)
	}
	// Without the policy the ports are open: it is the policy that refuses.
	s.awaitSynced(s.remove(only), "app", "edge")
	// Those of the sidecar are not: they lead nowhere.
	for port, want := range map[int]string{8080: "http", 9998: "http", 9999: "http", 15000: "503", 15001: "503", 15006: "closed"} {
		s.port = port
		s.await(t, fmt.Sprintf("port %d without the policy", port), plain, get("/"), want)
	}
	// A policy for the labels of the other service is for a workload that no sidecar is.
	s.awaitSynced(s.apply(authorization("beside", `{selector: {matchLabels: {app: beside}}, action: DENY, rules: [{}]}`)), "app")
	eventually(t, "the policy for nobody has a verdict", func() error {
		if out := s.must("", "get", "authorizationpolicy", "beside", "-n", "shop", "-o", "yaml"); !strings.Contains(out, "PTL0371") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.port = 9998
	if got, err := s.send(plain, get("/")); err != nil || got != "http" {
		t.Errorf("the policy for nobody: %s, %v", got, err)
	}
}

// TestEnvoyBypassServerFirst: a connection is judged by the client's first bytes. Before, a client
// over mutual TLS hears a server that speaks first, as it does in Istio (PTL0384). Nothing of a
// refused client reaches the server.
func TestEnvoyBypassServerFirst(t *testing.T) {
	t.Parallel()
	s := newBypassScene(t, "")
	const port, said = 5432, "\x01hello\n"
	talk := func(at entrance, says string) (string, error) {
		c, err := s.dialTo(at, fmt.Sprint("10.0.0.1:", port), meshHTTP...)
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, says); err != nil {
			return "", err
		}
		answer, _ := io.ReadAll(io.LimitReader(c, int64(len(peerGreeting+"\n"+says))))
		return string(answer), nil
	}
	for _, at := range ours(plain, mutual) {
		if got, err := talk(at, said); err != nil || got != peerGreeting+"\n"+said {
			t.Errorf("without a policy by %s: %q, %v", at, got, err)
		}
	}
	s.awaitSynced(s.apply(authorization("deny", "{action: DENY, rules: [{}]}")), "app")
	s.port = port
	s.await(t, "a DENY of all", plain, knock{raw: said}, "closed")
	for _, at := range ours(plain, mutual) { // the greeting may be faster than the client's word
		if got, err := talk(at, said); err != nil || strings.Contains(got, said) {
			t.Errorf("by %s: %q, %v", at, got, err)
		}
	}
	if got, err := talk(mutual, ""); err != nil || got != peerGreeting+"\n" {
		t.Errorf("over mutual TLS, without a word: %q, %v, want the greeting", got, err)
	}
}

// TestEnvoyBypassDetection: where a port declares no protocol, a request that is not seen as HTTP is
// judged as a connection, for which a DENY of a path is a DENY of all.
func TestEnvoyBypassDetection(t *testing.T) {
	t.Parallel()
	s := newBypassScene(t, "")
	s.port = 7000
	for policy, cases := range map[string]map[string]knock{
		"{action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}": {"denied": get("/admin"), "200": get("/open"), "closed": get("/admin?\xe4")},
		"{rules: [{to: [{operation: {paths: [/open]}}]}]}":                {"denied": get("/admin"), "200": get("/open"), "closed": get("/open?\xe4")},
	} {
		s.awaitSynced(s.apply(authorization("path", policy)), "app")
		for want, k := range cases {
			s.await(t, policy, plain, k, want)
		}
	}
}
