package listener_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestDynamicDNS: the host of a request is its endpoint, in listeners for ports of
// dynamic services and in those of gateways.
func TestDynamicDNS(t *testing.T) {
	t.Parallel()
	wild := xdstest.Object("ServiceEntry", "wild", "{hosts: ['*.example.com'], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}]}")
	one := xdstest.HTTPService("one", "one.example.com", "10.1.0.1")
	routed := xdstest.Object("VirtualService", "v", "{hosts: ['*.example.com'], gateways: [mesh, edge/gw], http: [{route: [{destination: {host: '*.example.com', port: {number: 80}}}]}]}")
	gw := xdstest.Object("Gateway", "edge/gw", "{selector: {istio: gateway}, servers: [{port: {number: 8000, name: http, protocol: HTTP}, hosts: ['*']}]}")
	sidecar, edge := xdstest.Node{}, xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"istio": "gateway"}}
	for name, c := range map[string]struct {
		node      xdstest.Node
		documents []string
		request   simulate.Request
		want      string
		endpoints []string
	}{
		"its host":             {node: sidecar, documents: []string{wild}, request: simulate.Request{Host: "a.example.com"}, want: "outbound|80||*.example.com", endpoints: []string{"a.example.com:80"}},
		"its host and port":    {node: sidecar, documents: []string{wild}, request: simulate.Request{Host: "a.example.com:81"}, want: "outbound|80||*.example.com", endpoints: []string{"a.example.com:81"}},
		"another host":         {node: sidecar, documents: []string{wild}, request: simulate.Request{Host: "a.example.org"}, want: "PassthroughCluster"},
		"a service of its own": {node: sidecar, documents: []string{wild, one}, request: simulate.Request{Host: "one.example.com"}, want: "outbound|80||one.example.com", endpoints: []string{"10.1.0.1:80"}},
		"by a route":           {node: sidecar, documents: []string{wild, routed}, request: simulate.Request{Host: "b.example.com"}, want: "outbound|80||*.example.com", endpoints: []string{"b.example.com:80"}},
		"at a gateway":         {node: edge, documents: []string{wild, routed, gw}, request: simulate.Request{Port: 8000, Host: "c.example.com"}, want: "outbound|80||*.example.com", endpoints: []string{"c.example.com:80"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := xdstest.NewWorld(t, c.documents...).Simulate(c.node).Run(c.request)
			if got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if diff := cmp.Diff(c.endpoints, got.Endpoints()); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := xdstest.NewWorld(t, wild).Simulate(sidecar).Run(simulate.Request{Port: 90, Protocol: simulate.TCP}); got.Err == nil {
		t.Errorf("a port that names no host: %s", got)
	}
}

// TestDynamicDNSOverTLS: the SNI name of a connection is its endpoint. No connection for
// a name outside the service's host goes to it.
func TestDynamicDNSOverTLS(t *testing.T) {
	t.Parallel()
	const wildTLS, wildHTTPS, pass = "outbound|443||*.example.com", "outbound|8443||*.example.com", "PassthroughCluster"
	wild := xdstest.Object("ServiceEntry", "wild", "{hosts: ['*.example.com'], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL, ports: [{number: 443, name: tls, protocol: TLS}, {number: 8443, name: https, protocol: HTTPS}]}")
	service := func(name, protocol string) string {
		return xdstest.Object("ServiceEntry", name, "{hosts: ["+name+".example.com], ports: [{number: 443, name: port, protocol: "+protocol+"}], resolution: STATIC, endpoints: [{address: 10.1.0.1}]}")
	}
	sidecar := func(protocol string) string {
		return xdstest.Object("Sidecar", "s", "{egress: [{port: {number: 443, protocol: "+protocol+", name: p}, hosts: ['*/*']}]}")
	}
	http := xdstest.Object("ServiceEntry", "wild", "{hosts: ['*.example.com'], resolution: DYNAMIC_DNS, location: MESH_EXTERNAL, ports: [{number: 443, name: http, protocol: HTTP}]}")
	tls := func(name string) simulate.Request {
		return simulate.Request{Address: "10.1.1.1", Port: 443, Protocol: simulate.TLS, SNI: name}
	}
	tcp := simulate.Request{Address: "10.1.1.1", Port: 443, Protocol: simulate.TCP}
	own := func(r simulate.Request) simulate.Request {
		r.Address = "127.0.0.1"
		return r
	}
	uncaptured := xdstest.Node{}
	for name, c := range map[string]struct {
		node      *xdstest.Node
		documents []string
		request   simulate.Request
		want      string
		endpoints []string
	}{
		"its name":                         {documents: []string{wild}, request: tls("a.b.example.com"), want: wildTLS, endpoints: []string{"a.b.example.com:443"}},
		"another name":                     {documents: []string{wild}, request: tls("example.com"), want: pass},
		"no name":                          {documents: []string{wild}, request: tls(""), want: pass},
		"no TLS":                           {documents: []string{wild}, request: tcp, want: pass},
		"a service of its own":             {documents: []string{wild, service("one", "TLS")}, request: tls("one.example.com"), want: "outbound|443||one.example.com", endpoints: []string{"10.1.0.1:443"}},
		"beside TCP":                       {documents: []string{service("raw", "TCP"), wild}, request: tls("a.example.com"), want: wildTLS, endpoints: []string{"a.example.com:443"}},
		"no TLS beside TCP":                {documents: []string{service("raw", "TCP"), wild}, request: tcp, want: "outbound|443||raw.example.com", endpoints: []string{"10.1.0.1:443"}},
		"beside HTTP":                      {documents: []string{service("web", "HTTP"), wild}, request: tls("a.example.com"), want: wildTLS, endpoints: []string{"a.example.com:443"}},
		"on its own machine":               {node: &uncaptured, documents: []string{wild}, request: own(tls("a.example.com")), want: wildTLS, endpoints: []string{"a.example.com:443"}},
		"another name on its own machine":  {node: &uncaptured, documents: []string{wild, service("one", "TLS")}, request: own(tls("elsewhere.org")), want: pass},
		"beside an older one of TLS":       {node: &uncaptured, documents: []string{service("one", "TLS"), wild}, request: own(tls("a.example.com")), want: wildTLS, endpoints: []string{"a.example.com:443"}},
		"another name, of the older one":   {node: &uncaptured, documents: []string{service("one", "TLS"), wild}, request: own(tls("elsewhere.org")), want: "outbound|443||one.example.com", endpoints: []string{"10.1.0.1:443"}},
		"an egress port for TLS":           {documents: []string{http, sidecar("TLS")}, request: tls("a.example.com"), want: wildTLS, endpoints: []string{"a.example.com:443"}},
		"an egress port for TCP":           {documents: []string{wild, sidecar("TCP")}, request: tls("a.example.com"), want: pass},
		"an egress port for TCP, of HTTP":  {documents: []string{http, sidecar("TCP")}, request: tls("a.example.com"), want: pass},
		"a socket's port for TCP":          {node: &uncaptured, documents: []string{wild, sidecar("TCP")}, request: own(tls("a.example.com")), want: "no listener"},
		"and another service there":        {node: &uncaptured, documents: []string{wild, service("one", "TLS"), sidecar("TCP")}, request: own(tls("a.example.com")), want: "outbound|443||one.example.com", endpoints: []string{"10.1.0.1:443"}},
		"a route":                          {documents: []string{wild, routes("r", "hosts: ['*.example.com'], tls: [{match: [{sniHosts: [b.example.com]}], route: [{destination: {host: '*.example.com', port: {number: 8443}}}]}]")}, request: tls("b.example.com"), want: wildHTTPS, endpoints: []string{"b.example.com:8443"}},
		"a route to a service of its own":  {documents: []string{wild, service("raw", "TCP"), routes("r", "hosts: ['*.example.com'], tls: [{match: [{sniHosts: [b.example.com]}], route: [{destination: {host: raw.example.com}}]}]")}, request: tls("b.example.com"), want: "outbound|443||raw.example.com", endpoints: []string{"10.1.0.1:443"}},
		"a route of another service":       {documents: []string{wild, service("one", "TLS"), routes("r", "hosts: [one.example.com], tls: [{match: [{sniHosts: [one.example.com]}], route: [{destination: {host: '*.example.com', port: {number: 8443}}}]}]")}, request: tls("one.example.com"), want: wildHTTPS, endpoints: []string{"one.example.com:8443"}},
		"weights":                          {documents: []string{wild, service("raw", "TCP"), routes("r", "hosts: ['*.example.com'], tls: [{match: [{sniHosts: [b.example.com]}], route: [{destination: {host: raw.example.com}, weight: 10}, {destination: {host: '*.example.com', port: {number: 8443}}, weight: 90}, {destination: {host: '*.example.com', port: {number: 443}}, weight: 0}]}]")}, request: tls("b.example.com"), want: "outbound|443||raw.example.com=10 " + wildHTTPS + "=90", endpoints: []string{"10.1.0.1:443", "b.example.com:8443"}},
		"a tcp route, which knows no name": {documents: []string{wild, service("raw", "TCP"), routes("r", "hosts: [raw.example.com], tcp: [{route: [{destination: {host: '*.example.com', port: {number: 8443}}}]}]")}, request: tcp, want: wildHTTPS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := captured
			if c.node != nil {
				node = *c.node
			}
			got := xdstest.NewWorld(t, c.documents...).Simulate(node).Run(c.request)
			if got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if diff := cmp.Diff(c.endpoints, got.Endpoints()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAllowAnyDynamicDNS: requests to unknown hosts go to these hosts, and TCP
// connections go to their original destination.
func TestAllowAnyDynamicDNS(t *testing.T) {
	t.Parallel()
	const config, any, pass = "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}", "AllowAnyDynamicDNSCluster", "PassthroughCluster"
	web := xdstest.HTTPService("web", "web.example.com", "10.1.0.1")
	gw := xdstest.Object("Gateway", "edge/gw", "{selector: {istio: gateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}")
	policy := func(text string) string {
		return xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/*']}], outboundTrafficPolicy: "+text+"}")
	}
	edge := xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"istio": "gateway"}}
	unknown := simulate.Request{Host: "a.example.org:8081"}
	for name, c := range map[string]struct {
		node      xdstest.Node
		mesh      string
		documents []string
		request   simulate.Request
		want      string
		endpoints []string
	}{
		"an unknown host":                {request: unknown, want: any, endpoints: []string{"a.example.org:8081"}},
		"without a port":                 {request: simulate.Request{Host: "a.example.org"}, want: any, endpoints: []string{"a.example.org:80"}},
		"captured":                       {node: captured, request: simulate.Request{Address: "192.0.2.7", Host: "a.example.org"}, want: any, endpoints: []string{"a.example.org:80"}},
		"captured, on a port of no one":  {node: captured, request: simulate.Request{Address: "192.0.2.7", Port: 81, Host: "a.example.org:81"}, want: pass},
		"captured, not HTTP":             {node: captured, request: simulate.Request{Address: "192.0.2.7", Protocol: simulate.TCP}, want: pass},
		"captured, TLS":                  {node: captured, request: simulate.Request{Address: "192.0.2.7", Protocol: simulate.TLS, SNI: "a.example.org"}, want: pass},
		"a known host":                   {request: simulate.Request{Host: "web.example.com"}, want: "outbound|80||web.example.com", endpoints: []string{"10.1.0.1:80"}},
		"through the HTTP proxy":         {mesh: "proxyHttpPort: 3128\n", request: simulate.Request{Port: 3128, Host: "a.example.org:8081"}, want: any, endpoints: []string{"a.example.org:8081"}},
		"a Sidecar that lets pass":       {documents: []string{policy("{mode: ALLOW_ANY}")}, request: unknown, want: pass},
		"a Sidecar that lets nothing":    {documents: []string{policy("{mode: REGISTRY_ONLY}")}, request: unknown, want: "502"},
		"a Sidecar with an egress proxy": {documents: []string{policy("{mode: ALLOW_ANY, egressProxy: {host: web.example.com, port: {number: 80}}}")}, request: unknown, want: "outbound|80||web.example.com", endpoints: []string{"10.1.0.1:80"}},
		"a gateway":                      {node: edge, documents: []string{gw}, request: unknown, want: "no route"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append(c.documents, web)...)
			w.SetMesh(c.mesh + config)
			got := w.Simulate(c.node).Run(c.request)
			if got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if diff := cmp.Diff(c.endpoints, got.Endpoints()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
