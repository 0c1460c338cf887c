package virtualhost_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func TestSidecarVirtualHosts(t *testing.T) {
	t.Parallel()
	onto := func(name, hosts, destination string) string {
		return xdstest.Object("VirtualService", name, "{hosts: ["+hosts+"], http: [{route: [{destination: {host: "+destination+"}}]}]}")
	}
	hidden := xdstest.Object("ServiceEntry", "shop/hidden", "{hosts: [hidden.example.com], exportTo: ['.'], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}")
	vip := xdstest.Object("ServiceEntry", "vip", "{hosts: [vip.example.com], addresses: [10.9.0.1, 'fd00::1'], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}")
	later := xdstest.Object("ServiceEntry", "a-later", "{hosts: [zz.example.com], addresses: [10.9.0.1], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}")
	wild := xdstest.HTTPService("wild", "*.wild.example.com", "10.7.0.1")
	high := xdstest.Object("ServiceEntry", "high", "{hosts: [high.example.com], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}]}")
	run(t, []behaviour{
		{name: "a service without a VirtualService", mesh: []string{web, reviews}, request: simulate.Request{Host: "web.example.com"}, want: toWeb},
		{name: "the port of the host is ignored", mesh: []string{web}, request: simulate.Request{Host: "web.example.com:1234"}, want: toWeb},
		{name: "an address of the service", mesh: []string{vip}, request: simulate.Request{Host: "10.9.0.1"}, want: "outbound|80||vip.example.com"},
		{name: "an IPv6 address of the service", mesh: []string{vip}, request: simulate.Request{Host: "[fd00::1]"}, want: "outbound|80||vip.example.com"},
		{name: "an address of two services", mesh: []string{later, vip}, request: simulate.Request{Host: "10.9.0.1"}, want: "outbound|80||vip.example.com"},
		{name: "a wildcard service", mesh: []string{wild}, request: simulate.Request{Host: "a.wild.example.com"}, want: "outbound|80||*.wild.example.com"},
		{name: "a service that is not exported", mesh: []string{web, hidden}, request: simulate.Request{Host: "hidden.example.com"}, want: "PassthroughCluster"},
		{name: "the same within its namespace", mesh: []string{web, hidden}, node: xdstest.Node{Namespace: "shop"},
			request: simulate.Request{Host: "hidden.example.com"}, want: "outbound|80||hidden.example.com"},
		{name: "an unknown host", mesh: []string{web}, request: simulate.Request{Host: "other.example.com"}, want: "PassthroughCluster"},
		{name: "an unknown host where only the registry may be called", mesh: []string{web},
			config: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", request: simulate.Request{Host: "other.example.com"}, want: "502"},
		{name: "the Sidecar's policy outranks the mesh's", request: simulate.Request{Host: "other.example.com"}, want: "502",
			mesh: []string{web, xdstest.Object("Sidecar", "s", "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}")}},
		{name: "the oldest VirtualService keeps the host", mesh: []string{web, reviews, onto("b", "web.example.com", "reviews.example.com"), onto("a", "web.example.com", "web.example.com")},
			request: simulate.Request{Host: "web.example.com"}, want: toReviews},
		{name: "the most specific host of a VirtualService", request: simulate.Request{Host: "web.example.com"}, want: toReviews,
			mesh: []string{web, reviews, onto("a", "'*.example.com'", "web.example.com"), onto("b", "web.example.com", "reviews.example.com")}},
		{name: "host names know no case", request: simulate.Request{Host: "web.example.com"}, want: "outbound|80||reviews.example.com",
			mesh: []string{xdstest.HTTPService("web", "Web.Example.com", "10.7.0.1"), reviews, onto("a", "WEB.example.com", "Reviews.example.com")}},
		{name: "a wildcard VirtualService applies to a service", request: simulate.Request{Host: "web.example.com"}, want: toReviews,
			mesh: []string{web, reviews, onto("a", "'*.example.com'", "reviews.example.com")}},
		{name: "a wildcard VirtualService that covers services has no host of its own", request: simulate.Request{Host: "x.example.com"}, want: "PassthroughCluster",
			mesh: []string{web, reviews, onto("a", "'*.example.com'", "reviews.example.com")}},
		{name: "a host of no registry on port 80", request: simulate.Request{Host: "legacy.example.org"}, want: toWeb,
			mesh: []string{web, onto("a", "legacy.example.org", "web.example.com")}},
		{name: "a wildcard of no registry on port 80", request: simulate.Request{Host: "x.example.org"}, want: toWeb,
			mesh: []string{web, onto("a", "'*.example.org'", "web.example.com")}},
		{name: "a host of no registry on another port", request: simulate.Request{Host: "legacy.example.org", Port: 8080}, want: "PassthroughCluster",
			mesh: []string{web, high, onto("a", "legacy.example.org", "web.example.com")}},
		{name: "a VirtualService of a gateway does not touch sidecars", request: simulate.Request{Host: "web.example.com"}, want: toWeb,
			mesh: []string{web, reviews, xdstest.Object("VirtualService", "a", "{hosts: [web.example.com], gateways: [gw], http: [{route: [{destination: {host: reviews.example.com}}]}]}")}},
		{name: "a VirtualService that is not exported", request: simulate.Request{Host: "web.example.com"}, want: toWeb, node: xdstest.Node{Namespace: "shop"},
			mesh: []string{web, reviews, xdstest.Object("VirtualService", "a", "{hosts: [web.example.com], exportTo: ['.'], http: [{route: [{destination: {host: reviews.example.com}}]}]}")}},
	})
}

func TestSidecarScope(t *testing.T) {
	t.Parallel()
	shop := xdstest.HTTPService("shop/cart", "cart.example.com", "10.3.0.1")
	explicit := xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 80, protocol: HTTP, name: http}, hosts: ['*/web.example.com']}, {hosts: ['*/*']}]}")
	run(t, []behaviour{
		{name: "a host that is not imported", request: simulate.Request{Host: "cart.example.com"}, want: "PassthroughCluster",
			mesh: []string{web, shop, xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['./*']}]}")}},
		{name: "a host that a VirtualService routes to is imported", request: simulate.Request{Host: "web.example.com"}, want: "outbound|80||cart.example.com",
			mesh: []string{web, shop, xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['./*']}]}"), routes("{route: [{destination: {host: cart.example.com}}]}")}},
		{name: "a listener with a port has the hosts that it names", mesh: []string{web, shop, explicit},
			request: simulate.Request{Host: "web.example.com"}, want: toWeb},
		{name: "and no others", mesh: []string{web, shop, explicit}, request: simulate.Request{Host: "cart.example.com"}, want: "PassthroughCluster"},
		{name: "a host that a VirtualService routes to is no host of a listener", request: simulate.Request{Host: "cart.example.com"}, want: "PassthroughCluster",
			mesh: []string{web, shop, xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['./*']}]}"), routes("{route: [{destination: {host: cart.example.com}}]}")}},
		{name: "a host that is excluded", request: simulate.Request{Host: "cart.example.com"}, want: "PassthroughCluster",
			mesh: []string{web, shop, xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/*', '~shop/cart.example.com']}]}")}},
		{name: "a host that is excluded of any namespace", request: simulate.Request{Host: "cart.example.com"}, want: "PassthroughCluster",
			mesh: []string{web, shop, xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/*', '~/cart.example.com']}]}")}},
		{name: "an excluded host leaves VirtualServices of others", request: simulate.Request{Host: "web.example.com"}, want: "418",
			mesh: []string{web, shop, xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/*', '~/cart.example.com']}]}"),
				xdstest.Object("VirtualService", "v", "{hosts: ['*.example.com'], http: [{directResponse: {status: 418}}]}")}},
		{name: "traffic to unknown hosts goes to the egress proxy", request: simulate.Request{Host: "unknown.example.com"}, want: "outbound|80|v1|cart.example.com",
			mesh: []string{web, shop, xdstest.Object("DestinationRule", "shop/cart", "{host: cart.example.com, subsets: [{name: v1}]}"),
				xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['./*']}], outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: cart.example.com, port: {number: 80}, subset: v1}}}")}},
	})
}

// A host belongs to the proxy's own namespace first, then to one that an entry names,
// then to the oldest.
func TestNamespacesOfAHost(t *testing.T) {
	t.Parallel()
	var entries []string
	for _, namespace := range []string{"old", "new", "own"} {
		entries = append(entries, xdstest.Object("ServiceEntry", namespace+"/web", "{hosts: [web.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.1."+
			map[string]string{"old": "1", "new": "2", "own": "3"}[namespace]+"}]}"))
	}
	for hosts, want := range map[string]string{
		"'*/*'": "10.0.1.3:80",
		"'*/web.example.com', new/web.example.com": "10.0.1.3:80",
		"'*/*', ~own/web.example.com":              "10.0.1.1:80",
		"'*/*', new/*, ~own/*":                     "10.0.1.2:80",
		"new/*, old/*":                             "10.0.1.1:80",
	} {
		w := xdstest.NewWorld(t, append(slices.Clone(entries), xdstest.Object("Sidecar", "own/s", "{egress: [{hosts: ["+hosts+"]}]}"))...)
		got := w.Simulate(xdstest.Node{Namespace: "own"}).Run(simulate.Request{Host: "web.example.com"})
		if diff := cmp.Diff([]string{want}, got.Endpoints()); diff != "" {
			t.Errorf("hosts %s: %s", hosts, diff)
		}
	}
}

// Clients of an HTTP proxy and of a socket name the port that they want.
func TestRequestsThatNameThePort(t *testing.T) {
	t.Parallel()
	high := xdstest.Object("ServiceEntry", "high", "{hosts: [high.example.com], addresses: [10.9.0.9], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}, {number: 8081, name: h2, protocol: HTTP2}, {number: 8082, name: tcp, protocol: TCP}]}")
	legacy := xdstest.Object("VirtualService", "l", "{hosts: [legacy.example.org], http: [{route: [{destination: {host: web.example.com}}]}]}")
	sidecar := xdstest.Object("Sidecar", "s", `{egress: [{port: {number: 0, protocol: HTTP, name: s}, bind: 'unix:///s', hosts: ['*/high.example.com']},
		{port: {number: 3128, protocol: HTTP_PROXY, name: p}, hosts: ['*/web.example.com']}, {port: {number: 8081, protocol: TCP, name: t}, hosts: ['*/*']}, {hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`)
	objects := []string{web, high, legacy, sidecar}
	var all []behaviour
	for _, c := range []struct{ address, host, want string }{
		{"15080", "web.example.com", toWeb},
		{"15080", "web.example.com:80", toWeb},
		{"15080", "web.example.com:8080", "502"},
		{"15080", "high.example.com:8080", "outbound|8080||high.example.com"},
		{"15080", "10.9.0.9:8080", "outbound|8080||high.example.com"},
		{"15080", "high.example.com", "502"},
		{"15080", "high.example.com:8081", "502"}, // the listener of the port takes it for bytes
		{"15080", "high.example.com:8082", "502"},
		{"15080", "legacy.example.org", toWeb},
		{"3128", "web.example.com", toWeb},
		{"3128", "high.example.com:8080", "502"},
		{"unix:///s", "high.example.com:8080", "outbound|8080||high.example.com"},
		{"unix:///s", "high.example.com:8081", "outbound|8081||high.example.com"},
		{"unix:///s", "web.example.com", "502"},
	} {
		r := simulate.Request{Host: c.host, Address: c.address}
		if port, err := strconv.Atoi(c.address); err == nil {
			r.Address, r.Port = "", port
		}
		all = append(all, behaviour{name: c.host + " at " + c.address, mesh: objects, config: "proxyHttpPort: 15080", request: r, want: c.want})
	}
	run(t, all)
}

// Envoy refuses a domain that occurs twice, regardless of case.
func TestDomainsAreUnique(t *testing.T) {
	t.Parallel()
	s := xdstest.NewWorld(t, web, xdstest.HTTPService("same", "WEB.example.com"),
		xdstest.Object("ServiceEntry", "ip", "{hosts: [x.example.com, z.example.com], addresses: [10.9.0.1, 10.9.0.1/32], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}")).
		Simulate(xdstest.Node{})
	seen := map[string]bool{}
	for _, v := range s.Route("80").GetVirtualHosts() {
		for _, d := range v.GetDomains() {
			if seen[strings.ToLower(d)] {
				t.Errorf("%s stands twice", d)
			}
			seen[strings.ToLower(d)] = true
		}
	}
}

// If two services share a name, that of the proxy's namespace wins, else the oldest.
func TestOneServiceOfAName(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("shop/web", "web.example.com", "10.1.0.1"), xdstest.HTTPService("blog/web", "web.example.com", "10.1.0.2"))
	for namespace, want := range map[string]string{"shop": "10.1.0.1:80", "blog": "10.1.0.2:80", "other": "10.1.0.1:80"} {
		got := w.Simulate(xdstest.Node{Namespace: namespace}).Run(simulate.Request{Host: "web.example.com"})
		if diff := cmp.Diff([]string{want}, got.Endpoints()); diff != "" {
			t.Errorf("from %s: %s", namespace, diff)
		}
	}
}
