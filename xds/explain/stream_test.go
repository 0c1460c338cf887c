package explain_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainStreams: which tcp or tls route a connection takes.
func TestExplainStreams(t *testing.T) {
	t.Parallel()
	service := func(name, protocol string) string {
		return xdstest.Object("ServiceEntry", "shop/"+name, "{hosts: ["+name+".test], resolution: STATIC, ports: [{number: 7000, name: p, protocol: "+protocol+"}], endpoints: [{address: 10.1.0.1}]}")
	}
	w := xdstest.NewWorld(t, service("a", "TLS"), service("b", "TLS"), service("other", "TCP"),
		xdstest.Object("ServiceEntry", "shop/db", "{hosts: [db.test], addresses: [10.9.0.1], resolution: STATIC, ports: [{number: 5432, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.4}]}"),
		xdstest.Object("VirtualService", "shop/db", "{hosts: [db.test], tcp: [{match: [{port: 1}], route: [{destination: {host: a.test}}]}, {route: [{destination: {host: other.test}, weight: 1}, {destination: {host: db.test}, weight: 3}]}]}"),
		xdstest.Object("VirtualService", "shop/a", "{hosts: [a.test, c.test], tls: [{match: [{sniHosts: [c.test]}, {sniHosts: [a.test]}], route: [{destination: {host: other.test}}]}]}"),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}"),
		xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: [{port: {number: 9000, name: p, protocol: TCP}, hosts: ['*']}, {port: {number: 9001, name: q, protocol: TCP}, hosts: ['*']}]}"),
		xdstest.Object("VirtualService", "shop/edge", "{hosts: [db.test], gateways: [edge], tcp: [{match: [{port: 1}], route: [{destination: {host: a.test}}]}, {match: [{port: 9000}], route: [{destination: {host: db.test}}]}]}"))
	m := connected{w, []*discovery.Proxy{xdstest.Node{IP: "10.1.0.8", Namespace: "shop", Interception: discovery.InterceptionRedirect}.Proxy(t)}}
	for parameters, want := range map[string][3]string{
		"to=db.test:5432":                        {"virtualservice/shop/db", "spec.tcp[1]", "tcp"},
		"to=a.test:7000":                         {"virtualservice/shop/a", "spec.tls[0].match[1]", "tls"},
		"to=a.test:7000&sni=c.test":              {"virtualservice/shop/a", "spec.tls[0].match[0]", "tls"},
		"to=b.test:7000":                         {"", "", "tls"},
		"from=gateway/shop/edge&to=db.test:9000": {"virtualservice/shop/edge", "spec.tcp[1]", "tcp"},
	} {
		if !strings.HasPrefix(parameters, "from=") {
			parameters = "from=10.1.0.8&" + parameters
		}
		e, err := explained(t, m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		got := [3]string{"", "", e.Request.Protocol}
		if e.Route != nil {
			got[0], got[1] = e.Route.Object, e.Route.Field
		}
		if got != want || e.Outcome != "Forwarded" {
			t.Errorf("%s: %s by %v, want %v", parameters, e.Outcome, got, want)
		}
	}
	e, err := explained(t, m, "from=gateway/shop/edge&to=db.test:9001")
	const reason = "the proxy does not listen on port 9001: no VirtualService has a tcp route for the server of gateway/shop/edge on this port"
	if err != nil || e.Outcome != "Fails" || e.Reason != reason {
		t.Errorf("a server without a route: %v, %s: %s", err, e.Outcome, e.Reason)
	}
}

// TestExplainGatewayTLS: which server of a port accepts a TLS client for a host, and for which
// names none does.
func TestExplainGatewayTLS(t *testing.T) {
	t.Parallel()
	server := func(name, protocol, tls string) string {
		return "{port: {number: 9443, name: " + name + ", protocol: " + protocol + "}, hosts: [" + name + ".test], tls: {" + tls + "}}"
	}
	const files = "mode: SIMPLE, serverCertificate: /a/cert.pem, privateKey: /a/key.pem"
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/db", "{hosts: [db.test], resolution: STATIC, ports: [{number: 5432, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.4}]}"),
		xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: ["+strings.Join([]string{server("www", "HTTPS", files), server("vault", "TLS", "mode: PASSTHROUGH"), server("ledger", "TLS", files)}, ", ")+"]}"),
		xdstest.Object("VirtualService", "shop/www", "{hosts: [www.test], gateways: [edge], http: [{directResponse: {status: 204}}]}"),
		xdstest.Object("VirtualService", "shop/vault", "{hosts: [vault.test], gateways: [edge], tls: [{match: [{sniHosts: [vault.test]}], route: [{destination: {host: db.test}}]}]}"),
		xdstest.Object("VirtualService", "shop/ledger", "{hosts: [ledger.test], gateways: [edge], tcp: [{route: [{destination: {host: db.test}}]}]}"))
	m := connected{w, []*discovery.Proxy{}}
	for target, want := range map[string]string{
		"https://www.test:9443":              "https Answered by virtualservice/shop/www spec.http[0]",
		"https://vault.test:9443":            "tls Forwarded by virtualservice/shop/vault spec.tls[0].match[0]",
		"vault.test:9443":                    "tls Forwarded by virtualservice/shop/vault spec.tls[0].match[0]",
		"https://ledger.test:9443":           "tls Forwarded by virtualservice/shop/ledger spec.tcp[0]",
		"https://other.test:9443":            `https Fails: the listener closes the connection: no server is for the name "other.test"`,
		"https://127.0.0.1:9443":             `https Fails: the listener closes the connection: no server is for the name ""`,
		"https://other.test:9443&sni=a.test": `https Fails: the listener closes the connection: no server is for the name "a.test"`,
	} {
		e, err := explained(t, m, "from=gateway/shop/edge&to="+target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		got := e.Request.Protocol + " " + string(e.Outcome)
		if e.Route != nil {
			got += " by " + e.Route.Object + " " + e.Route.Field
		}
		if e.Outcome == "Fails" {
			got += ": " + e.Reason
		}
		if got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// TestExplainMisdirectedRequest: a request on the connection for a host of another TLS server of
// the port is answered with 421.
func TestExplainMisdirectedRequest(t *testing.T) {
	t.Parallel()
	server := func(name string) string {
		return "{port: {number: 443, name: " + name + ", protocol: HTTPS}, hosts: [" + name + ".test], tls: {mode: SIMPLE, serverCertificate: /c, privateKey: /k}}"
	}
	w := xdstest.NewWorld(t, xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: ["+server("a")+", "+server("b")+"]}"),
		xdstest.Object("VirtualService", "shop/a", "{hosts: [a.test], gateways: [edge], http: [{directResponse: {status: 204}}]}"))
	for header, want := range map[string]int{"": 204, "&header=host=b.test": 421, "&header=host=c.test": 404} {
		e, err := explained(t, connected{w, nil}, "from=gateway/shop/edge&to=https://a.test"+header)
		if err != nil || e.Status != want {
			t.Errorf("%s: %d %s, %v, want %d", header, e.Status, e.Reason, err, want)
		}
	}
}
