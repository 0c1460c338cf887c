package explain_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainTargetPorts: a request to a gateway names the port of a server, or the port on
// which the gateway listens for that server.
func TestExplainTargetPorts(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "edge/main", "{hosts: [main.test], resolution: STATIC, ports: [{number: 80, name: web, protocol: HTTP}, {number: 8080, name: db, protocol: TCP}], endpoints: [{address: 10.0.0.1, ports: {web: 8080, db: 9090}}]}"),
		xdstest.Object("Gateway", "edge/main", `{selector: {app: edge}, servers: [
		  {port: {number: 80, name: h, protocol: HTTP}, hosts: ['*']}, {port: {number: 8080, name: t, protocol: TCP}, hosts: ['*']}]}`),
		xdstest.Object("VirtualService", "edge/web", `{hosts: [web.test], gateways: [main], http: [{match: [{port: 80}], directResponse: {status: 201}}], tcp: [{route: [{destination: {host: main.test, port: {number: 8080}}}]}]}`))
	proxy := xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"app": "edge"}}.Proxy(t)
	m := connected{w, []*discovery.Proxy{proxy}}
	for to, want := range map[string][2]string{
		"web.test:80":   {"0.0.0.0_8080", "Answered | virtualservice/edge/web spec.http[0].match[0] | 201"},
		"web.test:8080": {"0.0.0.0_9090", "Forwarded | virtualservice/edge/web spec.tcp[0] | outbound|8080||main.test 10.0.0.1:9090"},
		"web.test:9090": {"0.0.0.0_9090", "Forwarded | virtualservice/edge/web spec.tcp[0] | outbound|8080||main.test 10.0.0.1:9090"},
		"none.test:80":  {"0.0.0.0_8080", "Fails | 404 | no route is for host none.test on port 80"},
	} {
		e, err := explained(t, m, "from="+proxy.ID+"&to="+to)
		if got := [2]string{e.Listener, line(e)}; err != nil || got != want {
			t.Errorf("%s: %v\n%q, want\n%q", to, err, got, want)
		}
	}
}
