package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

type connected struct {
	*xdstest.World
	nodes []*discovery.Proxy
}

func (c connected) Nodes() []*discovery.Proxy { return c.nodes }

// routed is a mesh with a route of every kind, a proxy that captures traffic, two proxies of
// endpoints, and a gRPC client.
func routed(t *testing.T) connected {
	service := func(name, host, spec string) string {
		return xdstest.Object("ServiceEntry", "shop/"+name, "{hosts: ["+host+"], location: MESH_INTERNAL, resolution: STATIC, "+spec+"}")
	}
	w := xdstest.NewWorld(t,
		service("reviews", "reviews.test", `ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [
		  {address: 10.1.0.1, labels: {version: v1}, locality: eu/a}, {address: 10.1.0.2, labels: {version: v1}, locality: eu/b}]`),
		service("plain", "plain.test", "ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.3}]"),
		service("hidden", "hidden.test", "exportTo: ['.'], ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.5}]"),
		service("db", "db.test", "addresses: [10.9.0.1], ports: [{number: 5432, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.4}]"),
		service("range", "range.test", "addresses: [10.8.0.0/16], ports: [{number: 7000, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.4}]"),
		service("orders", "orders.test", `ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 81, name: tcp, protocol: TCP, targetPort: 9999}, {number: 82, name: own, protocol: TCP, targetPort: 15006}],
		  endpoints: [{address: 10.1.0.20}, {address: 10.1.0.21}, {address: 10.1.0.22}]`),
		xdstest.Object("ServiceEntry", "shop/any", "{hosts: [any.test], resolution: NONE, ports: [{number: 6000, name: tcp, protocol: TCP}]}"),
		xdstest.Object("Sidecar", "shop/ingress", "{workloadSelector: {labels: {app: ingress}}, ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:7000'}]}"),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9, labels: {app: client}}"),
		xdstest.Object("Gateway", "edge/main", "{selector: {app: edge}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, bind: 127.0.0.9, hosts: ['*.test']}]}"),
		xdstest.Object("DestinationRule", "shop/reviews", "{host: reviews.test, subsets: [{name: v1, labels: {version: v1}}, {name: v9, labels: {version: v9}}]}"),
		xdstest.Object("VirtualService", "shop/reviews", `{hosts: [reviews.test], gateways: [mesh, edge/main], http: [
		  {name: odd, match: [{uri: {exact: /a}}, {uri: {prefix: /b/}, name: b}], timeout: 2s, retries: {attempts: 4, retryOn: 5xx}, rewrite: {uri: /z/}, route: [{destination: {host: reviews.test, subset: v1}}]},
		  {match: [{uri: {exact: /none}}], route: [{destination: {host: reviews.test, subset: v9}}]},
		  {match: [{uri: {exact: /gone}}], route: [{destination: {host: reviews.test, subset: v8}}]},
		  {match: [{uri: {exact: /unknown}}], route: [{destination: {host: unknown.test, port: {number: 80}}}]},
		  {match: [{uri: {exact: /hidden}}], route: [{destination: {host: hidden.test, port: {number: 80}}}]},
		  {match: [{uri: {exact: /port}}], route: [{destination: {host: reviews.test, port: {number: 81}}}]},
		  {match: [{uri: {exact: /split}}], route: [{destination: {host: reviews.test, subset: v1}, weight: 75}, {destination: {host: reviews.test, subset: v9}, weight: 25}]},
		  {match: [{uri: {exact: /moved}}], redirect: {uri: /new, redirectCode: 302}},
		  {match: [{uri: {exact: /broken}}], fault: {abort: {httpStatus: 418, percentage: {value: 100}}}, route: [{destination: {host: reviews.test}}]},
		  {match: [{headers: {x-user: {exact: anna}}, method: {exact: POST}}], route: [{destination: {host: plain.test}}]},
		  {match: [{uri: {prefix: /rest}}], route: [{destination: {host: reviews.test, subset: v1}}]}]}`),
	)
	var nodes []*discovery.Proxy
	for _, n := range []xdstest.Node{
		{IP: "10.1.0.8", Interception: discovery.InterceptionRedirect}, {IP: "10.1.0.7", Type: discovery.Proxyless},
		{IP: "10.1.0.20", Interception: discovery.InterceptionTproxy}, {IP: "10.1.0.21", Labels: map[string]string{"app": "ingress"}},
	} {
		n.Namespace = "shop"
		nodes = append(nodes, n.Proxy(t))
	}
	return connected{w, nodes}
}

// ContextAfter derives the mesh anew from the objects; it knows no new services.
func (c connected) ContextAfter(ops []storage.Op) *mesh.PushContext {
	in := c.Context().Inputs()
	in.Configs = in.Configs.After(ops, "cluster.local")
	return c.Context().Next(in)
}

// Refused returns nothing: the proxies of connected have taken all.
func (c connected) Refused(context.Context, string) []progress.Refused { return nil }

// anywhere has other servers run every gateway, and no other proxy.
type anywhere struct{}

func (anywhere) Find(url.Values, string) error { return nil }
func (anywhere) Runs(labels.Instance) bool     { return true }
func (anywhere) Proxies() []*discovery.Proxy   { return nil }

// explained requests an explanation with the parameters "k=v&...".
func explained(t *testing.T, m explain.Nodes, parameters string) (explain.Explanation, error) {
	t.Helper()
	values, err := url.ParseQuery(parameters)
	if err != nil {
		t.Fatal(err)
	}
	value, err := explain.Serve(m, catalogue.Types(), anywhere{})(httptest.NewRequest("GET", explain.Path+"?"+values.Encode(), nil), nil)
	if err != nil {
		return explain.Explanation{}, err
	}
	return *value.(*explain.Explanation), nil
}

func line(e explain.Explanation) string {
	out := []string{e.Outcome}
	if r := e.Route; r != nil && r.Object != "" {
		out = append(out, r.Object+" "+r.Field)
	}
	for _, d := range e.Destinations {
		out = append(out, d.Cluster+" "+strings.Join(d.Endpoints, ","))
	}
	if e.Status != 0 {
		b, _ := json.Marshal(e.Status)
		out = append(out, string(b))
	}
	if e.Reason != "" {
		out = append(out, e.Reason)
	}
	return strings.Join(out, " | ")
}

func TestExplainRequest(t *testing.T) {
	t.Parallel()
	m := routed(t)
	const vs, v1 = "virtualservice/shop/reviews spec.http", "outbound|80|v1|reviews.test 10.1.0.1:80,10.1.0.2:80"
	for parameters, want := range map[string]string{
		"from=shop/vm-1&to=reviews.test:80&path=/a":                        "Forwarded | " + vs + "[0].match[0] | " + v1,
		"from=shop/vm-1&to=http://reviews.test:80/a":                       "Forwarded | " + vs + "[0].match[0] | " + v1,
		"from=shop/vm-1&to=http://reviews.test/a":                          "Forwarded | " + vs + "[0].match[0] | " + v1,
		"from=10.1.0.9&to=REVIEWS.test:80&path=/b/c":                       "Forwarded | " + vs + "[0].match[1] | " + v1,
		"from=gateway/edge/main&to=reviews.test:8080&path=/a":              "Forwarded | " + vs + "[0].match[0] | " + v1,
		"from=shop/vm-1&to=reviews.test:80&path=/none":                     "Fails | " + vs + "[1].match[0] | outbound|80|v9|reviews.test  | 503 | reviews.test:80 subset v9: it has no endpoint",
		"from=shop/vm-1&to=reviews.test:80&path=/gone":                     "Fails | " + vs + "[2].match[0] | outbound|80|v8|reviews.test  | 503 | reviews.test:80 subset v8: no DestinationRule that applies has subset v8 of reviews.test",
		"from=shop/vm-1&to=reviews.test:80&path=/unknown":                  "Fails | " + vs + "[3].match[0] | outbound|80||unknown.test  | 503 | unknown.test:80: there is no service unknown.test",
		"from=gateway/edge/main&to=reviews.test:8080&path=/hidden":         "Fails | " + vs + "[4].match[0] | outbound|80||hidden.test  | 503 | hidden.test:80: the proxy does not see service hidden.test: look at exportTo of its ServiceEntry and at the Sidecar of the workload",
		"from=shop/vm-1&to=reviews.test:80&path=/port":                     "Fails | " + vs + "[5].match[0] | outbound|81||reviews.test  | 503 | reviews.test:81: service reviews.test has no port 81",
		"from=shop/vm-1&to=reviews.test:80&path=/split":                    "PartlyFails | " + vs + "[6].match[0] | " + v1 + " | outbound|80|v9|reviews.test  | 503 | reviews.test:80 subset v9: it has no endpoint",
		"from=shop/vm-1&to=reviews.test:80&path=/moved":                    "Answered | " + vs + "[7].match[0] | 302",
		"from=shop/vm-1&to=reviews.test:80&path=/broken":                   "Answered | " + vs + "[8].match[0] | 418 | the fault of the route answers every request",
		"from=shop/vm-1&to=reviews.test:80&header=x-user=anna&method=POST": "Forwarded | " + vs + "[9].match[0] | outbound|80||plain.test 10.1.0.3:80",
		"from=shop/vm-1&to=reviews.test:80&path=/nothing":                  "Fails | 404 | no route of the VirtualServices for reviews.test matches GET /nothing",
		"from=gateway/edge/main&to=elsewhere.example:8080":                 "Fails | 404 | no route is for host elsewhere.example:8080 on port 8080",
		"from=gateway/edge/main&to=reviews.test:81":                        "Fails | the proxy does not listen on port 81: no server of gateway/edge/main is for HTTP or TCP on this port",
		"from=shop/vm-1&to=reviews.test:99":                                "Fails | the proxy does not listen on port 99: service reviews.test has no port 99",
		"from=shop/vm-1&to=plain.test:80":                                  "Forwarded | outbound|80||plain.test 10.1.0.3:80",
		"from=shop/vm-1&to=other.test:80":                                  "Fails | PassthroughCluster  | 503 | PassthroughCluster: there is no service other.test: the requests go on to the client's destination, which only a proxy that captures traffic knows",
		"from=10.1.0.8&to=other.test:80":                                   "Passed | PassthroughCluster  | no service is meant: it goes on to the client's destination",
		"from=10.1.0.8&to=db.test:5432":                                    "Forwarded | outbound|5432||db.test 10.1.0.4:5432",
		"from=10.1.0.8&to=10.9.0.1:5432&sni=db.test":                       "Forwarded | outbound|5432||db.test 10.1.0.4:5432",
		"from=shop/vm-1&to=db.test:5432":                                   "Forwarded | outbound|5432||db.test 10.1.0.4:5432",
		"from=shop/vm-1&to=reviews.test:80&sni=reviews.test":               "Fails | 400 | the listener takes nothing but HTTP in plain text",
		"from=shop/vm-1&to=plain.test:80&path=/a&header=host=reviews.test": "Forwarded | " + vs + "[0].match[0] | " + v1,
	} {
		e, err := explained(t, m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
		} else if got := line(e); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", parameters, got, want)
		}
	}
}

// A captured connection goes to the service of its address.
func TestExplainCapturedConnections(t *testing.T) {
	t.Parallel()
	m := routed(t)
	for parameters, want := range map[string]string{
		"to=db.test:5432":                        "10.9.0.1 10.9.0.1_5432 | Forwarded | outbound|5432||db.test 10.1.0.4:5432",
		"to=10.9.0.1:5432":                       "10.9.0.1 10.9.0.1_5432 | Forwarded | outbound|5432||db.test 10.1.0.4:5432",
		"to=10.9.0.2:5432":                       "10.9.0.2 virtualOutbound virtualOutbound-catchall-tcp | Passed | PassthroughCluster 10.9.0.2:5432 | no service is meant: it goes on to the client's destination",
		"to=range.test:7000":                     "10.8.0.0 0.0.0.0_7000 | Forwarded | outbound|7000||range.test 10.1.0.4:7000",
		"to=10.8.3.4:7000":                       "10.8.3.4 0.0.0.0_7000 | Forwarded | outbound|7000||range.test 10.1.0.4:7000",
		"to=10.7.3.4:7000":                       "10.7.3.4 0.0.0.0_7000 PassthroughFilterChain | Passed | PassthroughCluster 10.7.3.4:7000 | no service is meant: it goes on to the client's destination",
		"to=10.7.3.4:6000":                       "10.7.3.4 0.0.0.0_6000 | Forwarded | outbound|6000||any.test 10.7.3.4:6000",
		"to=any.test:6000":                       "0.0.0.0_6000 | Forwarded | outbound|6000||any.test ",
		"to=10.7.3.4:80&header=host=plain.test":  "10.7.3.4 0.0.0.0_80 | Forwarded | outbound|80||plain.test 10.1.0.3:80",
		"to=10.7.3.4:80&header=host=other.test":  "10.7.3.4 0.0.0.0_80 | Passed | PassthroughCluster 10.7.3.4:80 | no service is meant: it goes on to the client's destination",
		"to=10.7.3.4:15001":                      "10.7.3.4 virtualOutbound virtualOutbound-blackhole | Fails | BlackHoleCluster  | BlackHoleCluster: port 15001 is that of the proxy's own listener",
		"to=10.7.3.4:15006":                      "10.7.3.4 virtualInbound virtualInbound-blackhole | Fails | BlackHoleCluster  | BlackHoleCluster: port 15006 is that of the proxy's own listener",
		"to=127.0.0.1:80":                        "127.0.0.1 | Passed | connections to a loopback address are not captured: they do not come to the proxy",
		"to=db.test:5432&sni=db.test":            "10.9.0.1 10.9.0.1_5432 | Forwarded | outbound|5432||db.test 10.1.0.4:5432",
		"from=shop/vm-1&to=10.9.0.1:5432&path=/": "10.9.0.1 | Passed | the proxy captures nothing and does not listen there: the connection does not come to it",
	} {
		if !strings.HasPrefix(parameters, "from=") {
			parameters = "from=10.1.0.8&" + parameters
		}
		e, err := explained(t, m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		got := strings.TrimLeft(strings.Join([]string{e.Request.Address, e.Listener, e.FilterChain}, " "), " ")
		if got = strings.TrimRight(got, " ") + " | " + line(e); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", parameters, got, want)
		}
	}
}

// If no service has its address, outboundTrafficPolicy decides about a captured connection.
func TestExplainCapturedConnectionsThatMayNotPass(t *testing.T) {
	t.Parallel()
	m := routed(t)
	m.SetMesh("outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
	for parameters, want := range map[string]string{
		"to=10.9.0.2:5432":  "Fails | BlackHoleCluster  | BlackHoleCluster: no service takes this, and the outbound traffic policy REGISTRY_ONLY lets nothing else pass",
		"to=other.test:80":  "Fails | 502 | no service has host other.test on port 80, and the outbound traffic policy REGISTRY_ONLY lets nothing else pass",
		"to=plain.test:80":  "Forwarded | outbound|80||plain.test 10.1.0.3:80",
		"to=range.test:123": "Fails | BlackHoleCluster  | BlackHoleCluster: no service takes this, and the outbound traffic policy REGISTRY_ONLY lets nothing else pass",
	} {
		e, err := explained(t, m, "from=10.1.0.8&"+parameters)
		if got := line(e); err != nil || got != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", parameters, err, got, want)
		}
	}
}

// The sidecars of the endpoints say what happens to the request there.
func TestExplainInbound(t *testing.T) {
	t.Parallel()
	m := routed(t)
	for parameters, want := range map[string][]string{
		"from=shop/vm-1&to=orders.test:80": {
			"10.1.0.20:8080 virtualInbound 0.0.0.0_8080 inbound|8080|| serviceentry/shop/orders Forwarded ",
			"10.1.0.21:8080 10.1.0.21_8080 inbound|8080|| sidecar/shop/ingress Forwarded 127.0.0.1:7000 ",
		},
		"from=shop/vm-1&to=orders.test:81": {
			"10.1.0.20:9999 virtualInbound 0.0.0.0_9999 inbound|9999|| serviceentry/shop/orders Forwarded ",
			"10.1.0.21:9999 Passed the sidecar captures nothing that comes in, and no ingress listener of a Sidecar is for port 9999: the application takes it",
		},
		"from=10.1.0.8&to=10.1.0.20:4711": {
			"10.1.0.20:4711 virtualInbound virtualInbound-catchall-http InboundPassthroughCluster Passed no service of its namespace has the workload serve port 4711: it goes on to the application as it is",
		},
		"from=shop/vm-1&to=orders.test:82": {
			"10.1.0.20:15006 virtualInbound virtualInbound-blackhole BlackHoleCluster serviceentry/shop/orders Fails port 15006 is that of the proxy's own listener",
			"10.1.0.21:15006 Passed the sidecar captures nothing that comes in, and no ingress listener of a Sidecar is for port 15006: the application takes it",
		},
		"from=10.1.0.20&to=orders.test:80": {
			"10.1.0.20:8080 Passed the proxy's own connections are not captured: the application takes them",
			"10.1.0.21:8080 10.1.0.21_8080 inbound|8080|| sidecar/shop/ingress Forwarded 127.0.0.1:7000 ",
		},
		"from=shop/vm-1&to=plain.test:80": nil,
	} {
		e, err := explained(t, m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		var got []string
		for _, in := range e.Destinations[0].Inbound {
			parts := slices.Concat(in.Endpoints, []string{in.Listener, in.FilterChain, in.Cluster}, in.Objects, []string{in.Outcome, in.Application, in.Reason})
			got = append(got, strings.Join(slices.DeleteFunc(parts[:len(parts)-1], func(s string) bool { return s == "" }), " ")+" "+in.Reason)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", parameters, got, want)
		}
	}
}

// TestExplainWhatTheClientSees: the outcome is what comes back to the client, also where a
// sidecar of the endpoints refuses the request, or nobody runs the Gateway.
func TestExplainWhatTheClientSees(t *testing.T) {
	t.Parallel()
	m := routed(t)
	client := xdstest.Node{IP: "10.1.0.30", Namespace: "shop", Certified: true}.Proxy(t)
	m.nodes = append(m.nodes, client)
	m.Apply(xdstest.Object("ServiceEntry", "shop/cart", "{hosts: [cart.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], endpoints: [{address: 10.1.0.20, labels: {version: v1}}, {address: 10.1.0.99, labels: {version: v2}}]}"))
	m.Apply(xdstest.Object("ServiceEntry", "shop/lone", "{hosts: [lone.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], endpoints: [{address: 10.1.0.20}]}"))
	mutual := func(host string) string {
		return xdstest.Object("DestinationRule", "shop/"+host, "{host: "+host+".test, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")
	}
	m.Apply(xdstest.Object("ServiceEntry", "shop/bytes", "{hosts: [bytes.test], addresses: [10.9.0.8], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 5433, name: tcp, protocol: TCP, targetPort: 8081}], endpoints: [{address: 10.1.0.20}]}"))
	for _, host := range []string{"cart", "lone", "bytes"} {
		m.Apply(mutual(host))
	}
	const ends = "the DestinationRule of the client begins TLS, and the sidecar ends none on this port: leave tls out, or give an ingress listener of its Sidecar tls"
	for to, want := range map[string]string{
		"lone.test:80":    "Fails | outbound|80||lone.test 10.1.0.20:8080 | 503 | lone.test:80: the sidecar at 10.1.0.20:8080 refuses it: " + ends,
		"cart.test:80":    "PartlyFails | outbound|80||cart.test 10.1.0.20:8080,10.1.0.99:8080 | 503 | cart.test:80: the sidecar at 10.1.0.20:8080 refuses it: " + ends,
		"bytes.test:5433": "Forwarded | outbound|5433||bytes.test 10.1.0.20:8081 | the DestinationRule of the client begins TLS, and the sidecar passes it on as it is: the application must end it",
	} {
		e, err := explained(t, m, "from=10.1.0.30&to="+to)
		if got := line(e); err != nil || got != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", to, err, got, want)
		}
	}

	asked := httptest.NewRequest("GET", explain.Path+"?from=gateway/edge/main&to=reviews.test:8080&path=/a", nil)
	outcome := func(m connected) string {
		value, err := explain.Serve(m, catalogue.Types(), nil)(asked, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := value.(*explain.Explanation)
		return e.Outcome + " " + e.Reason
	}
	if got := outcome(m); got != "Fails no gateway with the labels app=edge is connected, so nobody listens there" {
		t.Errorf("nobody runs the Gateway: %s", got)
	}
	m.nodes = append(m.nodes, xdstest.Node{IP: "10.1.0.40", Type: discovery.Router, Labels: map[string]string{"app": "edge", "x": "y"}}.Proxy(t))
	if got := outcome(m); got != "Forwarded " {
		t.Errorf("somebody runs the Gateway: %s", got)
	}
}

// Applications call services by short names too, which their proxies complete.
func TestExplainShortNames(t *testing.T) {
	t.Parallel()
	m := routed(t)
	m.Apply(xdstest.Object("ServiceEntry", "shop/long", "{hosts: [long.shop.svc.cluster.local], addresses: [10.9.0.7], location: MESH_INTERNAL, resolution: STATIC, "+
		"ports: [{number: 80, name: http, protocol: HTTP}, {number: 5432, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.4}]}"))
	const web, db = "Forwarded | outbound|80||long.shop.svc.cluster.local 10.1.0.4:80", "Forwarded | outbound|5432||long.shop.svc.cluster.local 10.1.0.4:5432"
	for name, want := range map[string]string{
		"long:80": web, "long.shop:80": web, "long.shop.svc.cluster.local.:80": web, "long.shop.svc:5432": db, "long:5432": db,
	} {
		for _, from := range []string{"10.1.0.8", "shop/vm-1"} { // the first captures traffic
			if from == "shop/vm-1" && strings.HasSuffix(name, ":5432") {
				continue
			}
			e, err := explained(t, m, "from="+from+"&to="+name)
			if got := line(e); err != nil || got != want {
				t.Errorf("%s to %s: %v\ngot  %s\nwant %s", from, name, err, got, want)
			}
		}
	}
}

// A gRPC client has only the routes of its target, and only the features of its library.
func TestExplainCalls(t *testing.T) {
	t.Parallel()
	m := routed(t)
	m.Apply(xdstest.Object("DestinationRule", "shop/plain", "{host: plain.test, trafficPolicy: {loadBalancer: {simple: RANDOM}, outlierDetection: {consecutive5xxErrors: 3}, connectionPool: {http: {http2MaxRequests: 5, maxRetries: 2}}}}"))
	m.Apply(xdstest.Object("VirtualService", "shop/orders", `{hosts: [orders.test], http: [{match: [{uri: {exact: /}}], route: [
	  {destination: {host: orders.test, port: {number: 80}}, weight: 100}, {destination: {host: plain.test}, weight: 0}]}]}`))
	const vs = "virtualservice/shop/reviews spec.http"
	for parameters, want := range map[string]string{
		"to=reviews.test:80&path=/a": "Forwarded | " + vs + "[0].match[0] | outbound|80|v1|reviews.test 10.1.0.1:80,10.1.0.2:80 | not taken: spec.http[0].rewrite spec.http[0].retries.retryOn: 5xx",
		"to=reviews.test:80&path=/moved": "Fails | " + vs + "[7].match[0] | BlackHoleCluster  | BlackHoleCluster: gRPC clients follow no redirect and know no direct response: the call fails as unavailable" +
			" | not taken: spec.http[7].redirect",
		"to=reviews.test:80&path=/none":        "Fails | " + vs + "[1].match[0] | outbound|80|v9|reviews.test  | reviews.test:80 subset v9: it has no endpoint",
		"to=reviews.test:80&path=/nothing":     "Fails | no route of the target matches: the call fails as unavailable",
		"to=plain.test:80":                     "Forwarded | outbound|80||plain.test 10.1.0.3:80 | not taken: trafficPolicy.loadBalancer.simple: RANDOM trafficPolicy.connectionPool.http.maxRetries trafficPolicy.outlierDetection",
		"to=reviews.test:80&header=x-user=ben": "Fails | no route of the target matches: the call fails as unavailable",
		"to=orders.test:80&path=/weighted":     "Fails | BlackHoleCluster  | BlackHoleCluster: no route of the VirtualService matches: the call fails as unavailable",
		"to=reviews.test:81":                   "Fails | the client sees no service with the target reviews.test:81: its calls fail as unavailable",
		"to=reviews.test:80&header=x-user=anna": "Forwarded | " + vs + "[9].match[0] | outbound|80||plain.test 10.1.0.3:80" +
			" | not taken: trafficPolicy.loadBalancer.simple: RANDOM trafficPolicy.connectionPool.http.maxRetries trafficPolicy.outlierDetection",
	} {
		e, err := explained(t, m, "from=10.1.0.7&"+parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		got := line(e)
		var missing []string
		if e.Route != nil {
			missing = e.Route.NotTaken
		}
		for _, d := range e.Destinations {
			missing = append(missing, d.NotTaken...)
		}
		if len(missing) > 0 {
			got += " | not taken: " + strings.Join(missing, " ")
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", parameters, got, want)
		}
	}
}

// A delegate's route comes with its place there, and with that of the delegating route.
func TestExplainDelegates(t *testing.T) {
	t.Parallel()
	m := routed(t)
	m.Apply(xdstest.Object("VirtualService", "shop/root", `{hosts: [orders.test], http: [{match: [{uri: {exact: /own}}], route: [{destination: {host: orders.test, port: {number: 80}}}]},
	  {match: [{method: {exact: PUT}}, {uri: {prefix: /a}}], delegate: {name: part, namespace: team}, headers: {request: {remove: [x]}}}]}`))
	m.Apply(xdstest.Object("VirtualService", "team/part", `{http: [{match: [{port: 80}], rewrite: {uri: /b}, route: [{destination: {host: orders.test, port: {number: 80}}}]}, {route: [{destination: {host: plain.test}}]}]}`))
	for parameters, want := range map[string][]string{
		"from=shop/vm-1&to=orders.test:80&path=/own":          {"virtualservice/shop/root", "spec.http[0].match[0]", "", ""},
		"from=shop/vm-1&to=orders.test:80&path=/a/1":          {"virtualservice/team/part", "spec.http[0].match[0]", "virtualservice/shop/root", "spec.http[1].match[1]"},
		"from=shop/vm-1&to=orders.test:80&path=/1&method=PUT": {"virtualservice/team/part", "spec.http[0].match[0]", "virtualservice/shop/root", "spec.http[1].match[0]"},
		"from=10.1.0.7&to=orders.test:80&path=/a/1": {"virtualservice/team/part", "spec.http[0].match[0]", "virtualservice/shop/root", "spec.http[1].match[1]",
			"spec.http[0].rewrite", "virtualservice/shop/root spec.http[1].headers"},
	} {
		e, err := explained(t, m, parameters)
		if err != nil || e.Route == nil {
			t.Errorf("%s: %v %+v", parameters, err, e)
			continue
		}
		if got := append([]string{e.Route.Object, e.Route.Field, e.Route.Root, e.Route.RootField}, e.Route.NotTaken...); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", parameters, got, want)
		}
	}
}

func TestExplainTellsTheTerms(t *testing.T) {
	t.Parallel()
	e, err := explained(t, routed(t), "from=shop/vm-1&to=reviews.test:80&path=/b/c")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"timeout":"2s","retries":4,"retryOn":"5xx"`, `"pathRewritten":"/z/c"`, `"name":"odd.b"`,
		`"services":["serviceentry/shop/reviews"],"rules":["destinationrule/shop/reviews"]`,
		`"localities":[{"locality":"eu/a","healthy":1,"total":1},{"locality":"eu/b","healthy":1,"total":1}]`,
		`"percent":100`, `"connected":false`, `"kind":"RequestExplanation"`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

func TestExplainRefuses(t *testing.T) {
	t.Parallel()
	m := routed(t)
	for parameters, want := range map[string]string{
		"from=shop/vm-1":                      "to=HOST:PORT",
		"from=shop/vm-1&to=a:0":               "a port from 1 to 65535",
		"to=a:80":                             "say from which proxy",
		"from=a&to=b.test":                    `as in b.test:80, is "b.test"`,
		"from=a&to=ftp://b.test:27200/x":      `as in b.test:27200, is "ftp`,
		"from=a&to=ftp://[::1]:81":            `as in [::1]:81, is`,
		"from=a&to=b.test/x":                  `as in b.test:80, is "b.test/x"`,
		"from=nobody&to=a:80":                 "no proxy, WorkloadEntry or address of an endpoint is called nobody",
		"from=gateway/edge/gone&to=a:80":      "there is no Gateway edge/gone",
		"from=10.1.0.7&to=a:80&method=GET":    "is a gRPC client: its calls are POST requests",
		"from=10.1.0.7&to=a:80&sni=a":         "is a gRPC client",
		"from=test&to=a:80":                   "4 proxies are called test",
		"from=shop/vm-1&to=a:80&path=x":       "does not begin with /",
		"from=shop/vm-1&to=a:80&ip=x":         "ip: must be an address",
		"from=shop/vm-1&to=a:80&ip=10.0.0.1":  "shop/vm-1 is no gateway",
		"from=shop/vm-1&to=a:80&header=x":     "use NAME=VALUE",
		"from=shop/vm-1&to=a:80&sni=a&path=/": "passes on unread",
	} {
		_, err := explained(t, m, parameters)
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.ErrStatus.Code != 400 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", parameters, err, want)
		}
	}
}
