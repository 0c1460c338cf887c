package explain_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainLostMirrors: an explanation lists mirrored requests that reach no endpoint, and
// why.
func TestExplainLostMirrors(t *testing.T) {
	t.Parallel()
	m := connected{xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}"),
		xdstest.Object("ServiceEntry", "shop/empty", "{hosts: [empty.test], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}"),
		xdstest.Object("VirtualService", "shop/web", `{hosts: [web.test], http: [{route: [{destination: {host: web.test}}], mirrors: [
		  {destination: {host: web.test}}, {destination: {host: web.test, subset: v9}}, {destination: {host: empty.test}}, {destination: {host: gone.test, port: {number: 80}}}]}]}`),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9}")), nil}
	e, err := explained(t, m, "from=shop/vm-1&to=web.test:80")
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Route.Mirrors) != 4 {
		t.Errorf("mirrors: %q", e.Route.Mirrors)
	}
	want := "web.test:80 subset v9: no DestinationRule that applies has subset v9 of web.test, empty.test:80: it has no endpoint, gone.test:80: there is no service gone.test"
	if got := strings.Join(e.Route.MirrorsLost, ", "); got != want {
		t.Errorf("lost: %s, want %s", got, want)
	}
	if got, want := line(e), "Forwarded | virtualservice/shop/web spec.http[0] | outbound|80||web.test 10.1.0.1:80"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestExplainWithoutEgressListener: if no egress listener carries a service on its port, the
// explanation blames the Sidecar, although the service has endpoints.
func TestExplainWithoutEgressListener(t *testing.T) {
	t.Parallel()
	service := func(name, port string) string {
		return xdstest.Object("ServiceEntry", "shop/"+name, "{hosts: ["+name+".test], resolution: STATIC, ports: [{number: "+port+", name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}")
	}
	m := connected{xdstest.NewWorld(t, service("web", "80"), service("other", "8080"),
		xdstest.Object("Sidecar", "shop/client", "{workloadSelector: {labels: {app: client}}, egress: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['./*']}]}"),
		xdstest.Object("WorkloadEntry", "shop/vm-1", "{address: 10.1.0.9, labels: {app: client}}")), nil}
	for target, want := range map[string]string{
		"web.test:80":     "Forwarded | outbound|80||web.test 10.1.0.1:80",
		"other.test:8080": "Fails | the proxy does not listen on port 8080: no egress listener of sidecar/shop/client carries other.test on this port",
		"other.test:8081": "Fails | the proxy does not listen on port 8081: service other.test has no port 8081",
	} {
		e, err := explained(t, m, "from=shop/vm-1&to="+target)
		if err != nil {
			t.Fatal(err)
		}
		if got := line(e); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", target, got, want)
		}
	}
}
