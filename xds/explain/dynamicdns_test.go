package explain_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainDynamicDNS: the endpoint of a service with resolution DYNAMIC_DNS is the host that
// the client names.
func TestExplainDynamicDNS(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/outside", "{hosts: ['*.example.com'], location: MESH_EXTERNAL, resolution: DYNAMIC_DNS, ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]}"),
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], resolution: STATIC, ports: [{number: 8080, name: http, protocol: HTTP}, {number: 7000, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.1}]}"),
		xdstest.Object("VirtualService", "shop/web", "{hosts: [web.test], http: [{route: [{destination: {host: '*.example.com', port: {number: 80}}}]}], tcp: [{route: [{destination: {host: '*.example.com', port: {number: 443}}}]}]}"),
		xdstest.Object("VirtualService", "shop/outside", "{hosts: ['*.example.com'], tls: [{match: [{sniHosts: [b.example.com]}], route: [{destination: {host: '*.example.com', port: {number: 80}}}]}, {match: [{sniHosts: ['*.example.com']}], route: [{destination: {host: '*.example.com', port: {number: 443}}}]}]}"),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}"))
	m := connected{w, []*discovery.Proxy{
		xdstest.Node{IP: "10.1.0.8", Namespace: "shop", Interception: discovery.InterceptionRedirect}.Proxy(t),
		xdstest.Node{IP: "10.1.0.7", Namespace: "shop", Type: discovery.Proxyless}.Proxy(t),
	}}
	const http, tls, routes = "outbound|80||*.example.com", "outbound|443||*.example.com", "virtualservice/shop/outside spec.tls"
	for parameters, want := range map[string]string{
		"from=shop/vm-1&to=a.example.com:80":                    "Forwarded | " + http + " a.example.com:80",
		"from=10.1.0.8&to=a.example.com:80":                     "Forwarded | " + http + " a.example.com:80",
		"from=10.1.0.8&to=a.example.com:443":                    "Forwarded | " + routes + "[1].match[0] | " + tls + " a.example.com:443",
		"from=10.1.0.8&to=b.example.com:443":                    "Forwarded | " + routes + "[0].match[0] | " + http + " b.example.com:80",
		"from=shop/vm-1&to=a.example.com:443&sni=c.example.com": "Forwarded | " + routes + "[1].match[0] | " + tls + " c.example.com:443",
		"from=10.1.0.8&to=a.example.com:443&sni=elsewhere.test": "Passed | PassthroughCluster  | no service is meant: it goes on to the client's destination",
		"from=shop/vm-1&to=web.test:8080":                       "Fails | virtualservice/shop/web spec.http[0] | " + http + "  | 503 | *.example.com:80: the proxy does not look hosts up on port 8080: no service with resolution DYNAMIC_DNS has it",
		"from=shop/vm-1&to=web.test:7000":                       "Fails | virtualservice/shop/web spec.tcp[0] | " + tls + "  | *.example.com:443: the connection names no host that the proxy could look up",
		"from=10.1.0.7&to=a.example.com:80":                     "Fails | the client sees no service with the target a.example.com:80: its calls fail as unavailable",
		"from=10.1.0.7&to=web.test:8080":                        "Fails | virtualservice/shop/web spec.http[0] | " + http + "  | *.example.com:80: service *.example.com has resolution DYNAMIC_DNS, which gRPC clients have nothing like",
	} {
		e, err := explained(t, m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		if got := line(e); got != want {
			t.Errorf("%s:\n%s, want\n%s", parameters, got, want)
		}
	}
	w.SetMesh("outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}")
	e, err := explained(t, m, "from=shop/vm-1&to=a.example.org:80")
	const want = "Passed | AllowAnyDynamicDNSCluster a.example.org:80 | no service is meant: the proxy resolves the host that the request names, as ALLOW_ANY_DYNAMIC_DNS says"
	if got := line(e); err != nil || got != want {
		t.Errorf("an unknown host: %s, %v, want %s", got, err, want)
	}
}

// TestExplainDynamicDNSOfRewrittenHosts: if a route or destination rewrites the host, the proxy
// looks up the new one.
func TestExplainDynamicDNSOfRewrittenHosts(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/outside", "{hosts: ['*.example.com'], location: MESH_EXTERNAL, resolution: DYNAMIC_DNS, ports: [{number: 80, name: http, protocol: HTTP}]}"),
		xdstest.Object("VirtualService", "shop/outside", `{hosts: ['*.example.com'], http: [
		  {match: [{uri: {prefix: /a}}], rewrite: {authority: 'b.example.com:8080'}, route: [{destination: {host: '*.example.com'}}]},
		  {match: [{uri: {prefix: /b}}], headers: {request: {set: {host: c.example.com}}}, route: [{destination: {host: '*.example.com'}}]},
		  {match: [{uri: {prefix: /c}}], route: [{destination: {host: '*.example.com'}, weight: 1}, {destination: {host: '*.example.com'}, weight: 1, headers: {request: {set: {host: d.example.com}}}}]},
		  {route: [{destination: {host: '*.example.com'}}]}]}`),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}"))
	m := connected{w, nil}
	const vs, to = "Forwarded | virtualservice/shop/outside spec.http", "outbound|80||*.example.com "
	for path, want := range map[string]string{
		"/a": vs + "[0].match[0] | " + to + "b.example.com:8080",
		"/b": vs + "[1].match[0] | " + to + "c.example.com:80",
		"/c": vs + "[2].match[0] | " + to + "a.example.com:80 | " + to + "d.example.com:80",
		"/d": vs + "[3] | " + to + "a.example.com:80",
	} {
		e, err := explained(t, m, "from=shop/vm-1&to=a.example.com:80&path="+path)
		if got := line(e); err != nil || got != want {
			t.Errorf("%s: %v\n%s, want\n%s", path, err, got, want)
		}
	}
}

// TestExplainVia: requests that reach a sidecar through a socket, or as an HTTP proxy.
func TestExplainVia(t *testing.T) {
	t.Parallel()
	service := func(name, protocol, port string) string {
		return xdstest.Object("ServiceEntry", "shop/"+name, "{hosts: ["+name+".test], resolution: STATIC, ports: [{number: "+port+", name: p, protocol: "+protocol+"}], endpoints: [{address: 10.1.0.1}]}")
	}
	w := xdstest.NewWorld(t, service("web", "HTTP", "80"), service("high", "HTTP", "8080"), service("db", "TCP", "5432"),
		xdstest.Object("VirtualService", "shop/high", "{hosts: [high.test], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: web.test}}]}, {route: [{destination: {host: high.test}}]}]}"),
		xdstest.Object("VirtualService", "shop/db", "{hosts: [db.test], tcp: [{route: [{destination: {host: web.test}}]}]}"),
		xdstest.Object("Sidecar", "shop/default", `{egress: [{port: {number: 0, protocol: HTTP, name: s}, bind: 'unix:///run/http', hosts: ['./*']},
		  {port: {number: 0, protocol: TCP, name: t}, bind: 'unix:///run/db', hosts: [./db.test]}, {port: {number: 3129, protocol: HTTP_PROXY, name: p}, hosts: [./web.test]}, {hosts: ['./*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}`),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}"))
	w.SetMesh("proxyHttpPort: 3128")
	m := connected{w, []*discovery.Proxy{xdstest.Node{IP: "10.1.0.7", Namespace: "shop", Type: discovery.Proxyless}.Proxy(t)}}
	const high, web = "outbound|8080||high.test 10.1.0.1:8080", "outbound|80||web.test 10.1.0.1:80"
	for parameters, want := range map[string][2]string{
		"to=high.test:8080&via=3128":             {"127.0.0.1_3128", "Forwarded | virtualservice/shop/high spec.http[1] | " + high},
		"to=high.test:8080&via=3128&path=/a":     {"127.0.0.1_3128", "Forwarded | virtualservice/shop/high spec.http[0].match[0] | " + web},
		"to=web.test:80&via=3128":                {"127.0.0.1_3128", "Forwarded | " + web},
		"to=web.test:8080&via=3128":              {"127.0.0.1_3128", "Fails | 502 | no service has host web.test:8080 on port 8080, and the outbound traffic policy REGISTRY_ONLY lets nothing else pass"},
		"to=web.test:80&via=3129":                {"127.0.0.1_3129", "Forwarded | " + web},
		"to=high.test:8080&via=3129":             {"127.0.0.1_3129", "Fails | 502 | no service has host high.test:8080 on port 8080, and the outbound traffic policy REGISTRY_ONLY lets nothing else pass"},
		"to=high.test:8080&via=unix:///run/http": {"unix:///run/http_0", "Forwarded | virtualservice/shop/high spec.http[1] | " + high},
		"to=db.test:5432&via=unix:///run/db":     {"unix:///run/db_0", "Forwarded | virtualservice/shop/db spec.tcp[0] | " + web},
		"to=high.test:8080&via=3130":             {"", "Fails | the proxy does not listen at 3130: see egress of its Sidecar, and proxyHttpPort of the mesh configuration"},
		"to=high.test:8080&via=unix:///run/none": {"", "Fails | the proxy does not listen at unix:///run/none: see egress of its Sidecar, and proxyHttpPort of the mesh configuration"},
	} {
		e, err := explained(t, m, "from=shop/vm-1&"+parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		if got := [2]string{e.Listener, line(e)}; got != want {
			t.Errorf("%s:\n%q, want\n%q", parameters, got, want)
		}
	}
	for _, parameters := range []string{"from=shop/vm-1&to=web.test:80&via=x", "from=shop/vm-1&to=web.test:80&via=70000", "from=10.1.0.7&to=web.test:80&via=3128"} {
		if _, err := explained(t, m, parameters); err == nil {
			t.Errorf("%s is answered", parameters)
		}
	}
}

// TestExplainSocketsOfGateways: a request comes to a gateway through a Unix domain socket of
// one of its servers.
func TestExplainSocketsOfGateways(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}"),
		xdstest.Object("Gateway", "edge/main", `{selector: {app: edge}, servers: [
		  {port: {number: 0, name: h, protocol: HTTP}, bind: 'unix:///run/h', hosts: [web.test]}, {port: {number: 0, name: t, protocol: TCP}, bind: 'unix:///run/t', hosts: [web.test]}]}`),
		xdstest.Object("VirtualService", "shop/web", `{hosts: [web.test], gateways: [edge/main], http: [{route: [{destination: {host: web.test}}]}],
		  tcp: [{route: [{destination: {host: web.test}}]}]}`))
	m := connected{World: w}
	const web = "outbound|80||web.test 10.1.0.1:80"
	for via, want := range map[string]string{
		"unix:///run/h":    "Forwarded | virtualservice/shop/web spec.http[0] | " + web,
		"unix:///run/t":    "Forwarded | virtualservice/shop/web spec.tcp[0] | " + web,
		"unix:///run/none": "Fails | the gateway does not listen at unix:///run/none: see the servers of its Gateways",
	} {
		e, err := explained(t, m, "from=gateway/edge/main&to=web.test:80&via="+via)
		if err != nil || line(e) != want {
			t.Errorf("%s:\n%q, %v, want\n%q", via, line(e), err, want)
		}
	}
	if e, err := explained(t, m, "from=gateway/edge/main&to=web.test:80&via=3128"); err == nil {
		t.Errorf("a gateway is an HTTP proxy: %+v", e)
	}
}
