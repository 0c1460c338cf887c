package listener_test

import (
	"cmp"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

const tls5432 = "5432, name: tls, protocol: TLS"

func routes(name, spec string) string { return xdstest.Object("VirtualService", name, "{"+spec+"}") }

// to is a route destination.
func to(name string) string {
	return "{destination: {host: " + name + ".example.com, port: {number: 5432}}}"
}

// TestStreams: where a connection goes by the tcp and tls routes of VirtualServices.
func TestStreams(t *testing.T) {
	t.Parallel()
	const a, b, c, pass = "outbound|5432||a.example.com", "outbound|5432||b.example.com", "outbound|5432||c.example.com", "PassthroughCluster"
	mine := xdstest.Node{Interception: discovery.InterceptionRedirect, Namespace: "default", Labels: map[string]string{"app": "x"}}
	none := xdstest.Node{Labels: map[string]string{"app": "x"}}
	dns := xdstest.Node{DNSCapture: true}
	tcp := func(address string) simulate.Request {
		return simulate.Request{Address: address, Port: 5432, Protocol: simulate.TCP}
	}
	tls := func(address, name string) simulate.Request {
		return simulate.Request{Address: address, Port: 5432, Protocol: simulate.TLS, SNI: name}
	}
	open, vip := []string{at("a", tcp5432), at("b", tcp5432, "10.9.0.2"), at("c", tcp5432, "10.9.0.3")},
		[]string{at("a", tcp5432, "10.9.0.1"), at("b", tcp5432, "10.9.0.2"), at("c", tcp5432, "10.9.0.3")}
	secure := []string{at("a", tls5432), at("b", tls5432), at("c", tls5432, "10.9.0.3")}
	with := func(objects []string, more ...string) []string {
		return append(append([]string{}, objects...), more...)
	}
	tests := []struct {
		name    string
		node    *xdstest.Node
		mesh    []string
		request simulate.Request
		want    string
	}{
		{name: "a route without a match", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: b},
		{name: "not of another service", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]")), request: tcp("10.9.0.3"), want: c},
		{name: "without a port it is the service's only one", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{route: [{destination: {host: b.example.com}}]}]")), request: tcp("10.9.0.1"), want: b},
		{name: "at every address", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]")), request: tcp("10.1.1.1"), want: b},
		{name: "of a proxy that captures nothing", node: &none, mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]")), request: tcp("127.0.0.1"), want: b},
		{name: "at an address that was given", node: &dns, mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]")), request: tcp("240.240.0.1"), want: b},
		{name: "of a pattern that covers the host", mesh: with(vip, routes("r", "hosts: ['*.example.com'], tcp: [{route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: b},
		{name: "weights", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{route: [{destination: {host: b.example.com}, weight: 30}, {destination: {host: c.example.com}, weight: 70}, {destination: {host: a.example.com}, weight: 0}]}]")),
			request: tcp("10.9.0.1"), want: b + "=30 " + c + "=70"},
		{name: "one destination needs no weight", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{route: [{destination: {host: b.example.com}, weight: 0}]}]")), request: tcp("10.9.0.1"), want: b},
		{name: "another port", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{match: [{port: 1}], route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: a},
		{name: "other source labels", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{match: [{sourceLabels: {app: other}}], route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: a},
		{name: "its source labels", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{match: [{sourceLabels: {app: x}, port: 5432, sourceNamespace: default, gateways: [mesh]}], route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: b},
		{name: "another source namespace", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{match: [{sourceNamespace: other}], route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: a},
		{name: "another gateway", mesh: with(vip, routes("r", "hosts: [a.example.com], gateways: [mesh, g], tcp: [{match: [{gateways: [g]}], route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: a},
		{name: "no route of sidecars", mesh: with(vip, routes("r", "hosts: [a.example.com], gateways: [g], tcp: [{route: ["+to("b")+"]}]")), request: tcp("10.9.0.1"), want: a},
		{name: "in a subnet", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [10.1.0.0/16, 10.3.3.3]}], route: ["+to("b")+"]}]")), request: tcp("10.1.2.3"), want: b},
		{name: "a single address", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [10.1.0.0/16, 10.3.3.3]}], route: ["+to("b")+"]}]")), request: tcp("10.3.3.3"), want: b},
		{name: "outside of it", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [10.1.0.0/16]}], route: ["+to("b")+"]}]")), request: tcp("10.2.2.3"), want: a},
		{name: "every address is no subnet", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [0.0.0.0/0]}], route: ["+to("b")+"]}]")), request: tcp("10.2.2.3"), want: b},
		{name: "the first of two routes for a subnet", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [10.1.0.0/16]}], route: ["+to("b")+"]}, {match: [{destinationSubnets: [10.1.9.9/16, 10.4.0.0/16]}], route: ["+to("c")+"]}]")), request: tcp("10.1.2.3"), want: b},
		{name: "the rest of the second", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [10.1.0.0/16]}], route: ["+to("b")+"]}, {match: [{destinationSubnets: [10.1.9.9/16, 10.4.0.0/16]}], route: ["+to("c")+"]}]")), request: tcp("10.4.2.3"), want: c},
		{name: "behind a route for all", mesh: with(open, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}, {match: [{destinationSubnets: [10.1.0.0/16]}], route: ["+to("c")+"]}]")), request: tcp("10.1.2.3"), want: b},
		{name: "two VirtualServices: the oldest", mesh: with(vip, routes("z", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]"), routes("a", "hosts: [a.example.com], tcp: [{route: ["+to("c")+"]}]")), request: tcp("10.9.0.1"), want: b},
		{name: "the older pattern before the name", mesh: with(vip, routes("z", "hosts: ['*.example.com'], tcp: [{route: ["+to("b")+"]}]"), routes("a", "hosts: [a.example.com], tcp: [{route: ["+to("c")+"]}]")), request: tcp("10.9.0.1"), want: b},
		{name: "one with http routes only is none", mesh: with(vip, routes("z", "hosts: [a.example.com], http: [{route: ["+to("b")+"]}]"), routes("a", "hosts: [a.example.com], tcp: [{route: ["+to("c")+"]}]")), request: tcp("10.9.0.1"), want: c},
		{name: "a range of the service", mesh: with([]string{at("a", tcp5432, "10.8.0.0/16"), at("b", tcp5432, "10.9.0.2")}, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]")), request: tcp("10.8.1.1"), want: b},
		{name: "a subnet within it", mesh: with([]string{at("a", tcp5432, "10.8.0.0/16"), at("b", tcp5432, "10.9.0.2")}, routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [10.8.1.0/24]}], route: ["+to("b")+"]}]")), request: tcp("10.8.2.1"), want: a},
		{name: "tls routes have no effect on TCP", mesh: with(vip, routes("r", "hosts: [a.example.com], tls: [{match: [{sniHosts: [a.example.com]}], route: ["+to("b")+"]}]")), request: tls("10.9.0.1", "a.example.com"), want: a},
		{name: "tcp routes have none on TLS", mesh: with(secure, routes("r", "hosts: [c.example.com], tcp: [{route: ["+to("b")+"]}]")), request: tls("10.9.0.3", "c.example.com"), want: c},

		{name: "TLS to every address, by its name", mesh: secure, request: tls("10.1.1.1", "B.example.com"), want: b},
		{name: "TLS for another name", mesh: secure, request: tls("10.1.1.1", "x.example.com"), want: pass},
		{name: "what is not TLS", mesh: secure, request: tcp("10.1.1.1"), want: pass},
		{name: "beside TCP", mesh: with(secure, at("d", tcp5432)), request: tcp("10.1.1.1"), want: "outbound|5432||d.example.com"},
		{name: "TLS beside TCP", mesh: with([]string{at("d", tcp5432)}, secure...), request: tls("10.1.1.1", "b.example.com"), want: b},
		{name: "TLS of no name beside TCP", mesh: with([]string{at("d", tcp5432)}, secure...), request: tls("10.1.1.1", ""), want: "outbound|5432||d.example.com"},
		{name: "TLS at an address, whatever its name", mesh: secure, request: tls("10.9.0.3", "x.example.com"), want: c},
		{name: "TLS in a range, by its name", mesh: []string{at("a", tls5432, "10.8.0.0/16"), at("b", tls5432, "10.8.0.0/16")}, request: tls("10.8.1.1", "b.example.com"), want: b},
		{name: "TLS in a range that declares nothing", mesh: []string{at("a", plain5432, "10.8.0.0/16"), at("b", tls5432)}, request: tls("10.8.1.1", "x.example.com"), want: a},
		{name: "a pattern", mesh: []string{xdstest.Object("ServiceEntry", "w", "{hosts: ['*.w.example.com'], ports: [{number: "+tls5432+"}], resolution: NONE}"), at("b", tls5432)},
			request: tls("10.1.1.1", "deep.x.w.example.com"), want: "outbound|5432||*.w.example.com"},
		{name: "a route by name", mesh: with(secure, routes("r", "hosts: [c.example.com, d.example.com], tls: [{match: [{sniHosts: [d.example.com]}], route: ["+to("b")+"]}, {match: [{sniHosts: [c.example.com]}], route: ["+to("a")+"]}]")),
			request: tls("10.9.0.3", "d.example.com"), want: b},
		{name: "TLS that no route is for", mesh: with(secure, routes("r", "hosts: [c.example.com, d.example.com], tls: [{match: [{sniHosts: [d.example.com]}], route: ["+to("b")+"]}]")),
			request: tls("10.9.0.3", "c.example.com"), want: pass},
		{name: "a route for no proxy like this", mesh: with(secure, routes("r", "hosts: [c.example.com], tls: [{match: [{sniHosts: [c.example.com], sourceLabels: {app: other}}], route: ["+to("b")+"]}]")),
			request: tls("10.9.0.3", "c.example.com"), want: c},
		{name: "equal matches: the first", mesh: with(secure, routes("r", "hosts: [c.example.com], tls: [{match: [{sniHosts: [c.example.com]}], route: ["+to("a")+"]}, {match: [{sniHosts: [c.example.com, c.example.com]}], route: ["+to("b")+"]}]")),
			request: tls("10.9.0.3", "c.example.com"), want: a},
		{name: "by name and subnet", mesh: with(secure, routes("r", "hosts: [a.example.com], tls: [{match: [{sniHosts: [a.example.com], destinationSubnets: [10.2.0.0/16]}], route: ["+to("c")+"]}]")),
			request: tls("10.2.1.1", "a.example.com"), want: c},
		{name: "weights of TLS", mesh: with(secure, routes("r", "hosts: [a.example.com], tls: [{match: [{sniHosts: [a.example.com]}], route: [{destination: {host: b.example.com}, weight: 1}, {destination: {host: c.example.com}, weight: 3}]}]")),
			request: tls("10.2.1.1", "a.example.com"), want: b + "=1 " + c + "=3"},
		{name: "a pattern's routes by name", mesh: []string{xdstest.Object("ServiceEntry", "w", "{hosts: ['*.example.com'], ports: [{number: "+tls5432+"}], resolution: NONE}"), at("b", tcp5432, "10.9.0.2"),
			routes("r", "hosts: [q.example.com], tls: [{match: [{sniHosts: [q.example.com]}], route: ["+to("b")+"]}]")}, request: tls("10.1.1.1", "q.example.com"), want: b},
		{name: "TLS on one's own machine: the oldest", node: &none, mesh: secure, request: tls("127.0.0.1", "x.example.com"), want: a},
		{name: "another by its name", node: &none, mesh: secure, request: tls("127.0.0.1", "c.example.com"), want: c},
		{name: "not beside an older service that may speak first", node: &none, mesh: with([]string{at("d", tcp5432)}, secure...), request: tls("127.0.0.1", "c.example.com"), want: "outbound|5432||d.example.com"},
		{name: "an egress port for TLS, by name", mesh: with(vip, at("d", tcp5432), at("e", tcp5432),
			xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 5432, protocol: TLS, name: tls}, hosts: ['*/*']}]}")), request: tls("10.1.1.1", "e.example.com"), want: "outbound|5432||e.example.com"},
		{name: "a destination that the Sidecar does not import", mesh: with(vip, routes("r", "hosts: [a.example.com], tcp: [{route: ["+to("b")+"]}]"),
			xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/a.example.com']}]}")), request: tcp("10.9.0.1"), want: b},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, tt.mesh...)
			if tt.node == &dns {
				w.Assign("default", "a.example.com", "240.240.0.1")
			}
			got := w.Simulate(*cmp.Or(tt.node, &mine)).Run(tt.request)
			if got.String() != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestStreamChains: the names of statistics, the origin of a chain, hashes, and which
// listeners inspect TLS.
func TestStreamChains(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, at("a", tcp5432, "10.9.0.1"), at("b", tcp5432, "10.9.0.2"), at("c", tls5432, "10.9.0.3"),
		xdstest.Object("DestinationRule", "b", "{host: b.example.com, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}, connectionPool: {tcp: {idleTimeout: 3s}}}}"),
		routes("r", "hosts: [a.example.com], tcp: [{match: [{destinationSubnets: [10.9.0.0/31]}], route: [{destination: {host: b.example.com}, weight: 1}, {destination: {host: c.example.com}, weight: 1}]}, {route: ["+to("b")+"]}]"),
		routes("s", "hosts: [c.example.com], tls: [{match: [{sniHosts: [c.example.com]}], route: ["+to("b")+"]}]"))
	s := w.Simulate(captured)
	for address, want := range map[string]struct {
		prefix, config string
		tls            bool
	}{
		"10.9.0.1": {"r.default", "/apis/networking.istio.io/v1/namespaces/default/virtual-service/r", false},
		"10.9.0.3": {"outbound|5432||b.example.com", "/apis/networking.istio.io/v1/namespaces/default/virtual-service/s", true},
	} {
		got := s.Run(simulate.Request{Address: address, Port: 5432, Protocol: simulate.TLS, SNI: "c.example.com"})
		proxy := envoytest.TCPProxyOf(got.Chain)
		if proxy.GetStatPrefix() != want.prefix || got.Config() != want.config || len(proxy.GetHashPolicy()) != 1 || proxy.GetIdleTimeout().GetSeconds() != 3 ||
			len(s.Listener(address+"_5432").GetListenerFilters()) > 0 != want.tls {
			t.Errorf("%s: %v", address, s.Listener(address+"_5432"))
		}
	}
}
