package explain_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// resolved asks what a name stands for.
func resolved(m connected, parameters string) (*explain.Resolution, error) {
	value, err := explain.Resolve(m, catalogue.Types(), nil)(httptest.NewRequest(http.MethodGet, explain.ResolvePath+"?"+parameters, nil), nil)
	out, _ := value.(*explain.Resolution)
	return out, err
}

// TestResolve: which host a name stands for beside a sidecar, where its addresses are from, or why
// the resolvers of the machine are asked.
func TestResolve(t *testing.T) {
	t.Parallel()
	service := func(key, spec string) string { return xdstest.Object("ServiceEntry", key, spec) }
	const http, endpoint = "ports: [{number: 80, name: http, protocol: HTTP}]", "resolution: STATIC, endpoints: [{address: 10.0.0.1}]"
	w := xdstest.NewWorld(t,
		service("shop/web", "{hosts: [web.test], addresses: [10.9.0.1, 'fd00:9::1'], "+http+", "+endpoint+"}"),
		service("shop/reviews", "{hosts: [reviews.shop.svc.cluster.local], addresses: [10.9.0.2], "+http+", "+endpoint+"}"),
		service("shop/given", "{hosts: [given.test], "+http+", "+endpoint+"}"),
		service("shop/headless", "{hosts: [headless.test], ports: [{number: 5432, name: tcp, protocol: TCP}], resolution: NONE, workloadSelector: {labels: {app: db}}}"),
		xdstest.Object("WorkloadEntry", "shop/db-1", "{address: 10.0.0.3, labels: {app: db}}"),
		service("shop/none", "{hosts: [none.test], ports: [{number: 5432, name: tcp, protocol: TCP}], resolution: NONE}"),
		service("shop/range", "{hosts: [range.test], addresses: [10.8.0.0/16], ports: [{number: 5432, name: tcp, protocol: TCP}], "+endpoint+"}"),
		service("shop/dns", "{hosts: [dns.test], "+http+", resolution: DNS}"),
		service("shop/wild", "{hosts: ['*.wild.test'], addresses: [10.9.0.3], ports: [{number: 443, name: tls, protocol: TLS}], resolution: NONE}"),
		service("bank/own", "{hosts: [own.test], exportTo: ['.'], addresses: [10.9.0.4], "+http+", "+endpoint+"}"),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}"),
		xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))
	w.Assign("shop", "given.test", "240.240.0.1")
	m := connected{w, []*discovery.Proxy{
		xdstest.Node{IP: "10.1.0.8", Namespace: "shop"}.Proxy(t), xdstest.Node{IP: "10.1.0.7", Namespace: "bank", DNSCapture: true}.Proxy(t),
	}}
	for parameters, want := range map[string]struct{ host, addresses, from, says string }{
		"host=web.test&namespace=shop":        {"web.test", "10.9.0.1 fd00:9::1", "own", ""},
		"host=WEB.test.&namespace=shop":       {"web.test", "10.9.0.1 fd00:9::1", "own", ""},
		"host=given.test&from=shop/vm-1":      {"given.test", "240.240.0.1", "assigned", ""},
		"host=headless.test&namespace=shop":   {"headless.test", "10.0.0.3", "endpoints", ""},
		"host=reviews&namespace=shop":         {"reviews.shop.svc.cluster.local", "10.9.0.2", "own", ""},
		"host=reviews.shop&namespace=bank":    {"reviews.shop.svc.cluster.local", "10.9.0.2", "own", ""},
		"host=reviews.shop.svc&from=10.1.0.7": {"reviews.shop.svc.cluster.local", "10.9.0.2", "own", ""},
		"host=reviews&namespace=bank":         {"", "", "", "no service of the mesh has this host"},
		"host=a.b.wild.test&namespace=shop":   {"*.wild.test", "10.9.0.3", "own", ""},
		"host=wild.test&namespace=shop":       {"", "", "", "no service of the mesh has this host"},
		"host=own.test&namespace=bank":        {"own.test", "10.9.0.4", "own", ""},
		"host=own.test&namespace=shop":        {"", "", "", "the proxy does not see own.test of namespace bank: its exportTo, or a Sidecar, leaves it out"},
		"host=none.test&namespace=shop":       {"", "", "", "none.test has no address and no healthy endpoint"},
		"host=range.test&namespace=shop":      {"", "", "", "range.test has a range of addresses, and no single one"},
		"host=dns.test&namespace=shop":        {"", "", "", "dns.test has no address, and its resolution is by DNS: clients resolve it themselves"},
		"host=wev.test&namespace=shop":        {"", "", "", "no service of the mesh has this host: did you mean web.test?"},
		"host=web.test&from=10.1.0.8":         {"web.test", "10.9.0.1", "own", "nobody beside it asks for the names of the mesh"},
	} {
		r, err := resolved(m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		if got := strings.Join(r.Addresses, " "); r.Host != want.host || got != want.addresses && !strings.HasPrefix(got, want.addresses+" ") || string(r.From) != want.from || !strings.HasPrefix(r.Reason+r.Warning, want.says) || want.says == "" && r.Reason+r.Warning != "" {
			t.Errorf("%s: %+v, want %v", parameters, r, want)
		}
		if r.Host != "" && !slices.ContainsFunc(r.Objects, func(o string) bool { return strings.HasPrefix(o, "serviceentry/") }) {
			t.Errorf("%s: it was made of %v", parameters, r.Objects)
		}
	}
	for parameters, says := range map[string]string{
		"namespace=shop":                      `host "": say which name`,
		"host=a:80&namespace=shop":            `host "a:80": say which name`,
		"host=a":                              "say who asks: from=PROXY, or namespace=NAMESPACE",
		"host=a&from=10.1.0.8&namespace=shop": "say who asks: from=PROXY, or namespace=NAMESPACE",
		"host=a&from=nobody":                  "no proxy, WorkloadEntry or address of an endpoint is called nobody",
		"host=a&from=gateway/shop/edge":       "gateway/shop/edge is no sidecar: names are answered by the agents of machines beside sidecars",
	} {
		if _, err := resolved(m, parameters); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", parameters, err, says)
		}
	}
}
