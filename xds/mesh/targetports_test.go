package mesh_test

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestARouterListensOnTargetPorts: a router's class has the target ports of its Gateways'
// servers for which a service of its own namespace maps the port. It follows each change.
func TestARouterListensOnTargetPorts(t *testing.T) {
	t.Parallel()
	service := func(name, ports, at string) string {
		return xdstest.Object("ServiceEntry", name, fmt.Sprintf("{hosts: [%s.example], resolution: STATIC, ports: [%s], endpoints: [{address: 10.0.0.1, ports: {%s}}]}", name[len("edge/"):], ports, at))
	}
	const web, more = "{number: 80, name: web, protocol: HTTP}", ", {number: 90, name: more, protocol: HTTP}"
	gateway := func(port int) string {
		return xdstest.Object("Gateway", "shop/gw", fmt.Sprintf("{selector: {app: gw}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['*']}]}", port))
	}
	node := xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"app": "gw"}, Identity: "spiffe://cluster.local/ns/edge/sa/gw"}
	proxy, w := node.Proxy(t), xdstest.NewWorld(t)
	from := w.Context()
	class := from.ClassAfter(nil, proxy, mesh.Class{})
	listens := func(on, ports string) {
		t.Helper()
		class = w.Context().ClassAfter(from, proxy, class)
		from = w.Context()
		if class != from.ClassOf(proxy) {
			t.Errorf("the class that follows is not that of the context: %+v", class)
		}
		if class.Ports != ports {
			t.Errorf("the ports are %q, want %q", class.Ports, ports)
		}
		if l := w.View(node).GatewayListener("0.0.0.0_" + on); l == nil {
			t.Errorf("it does not listen on %s", on)
		}
	}
	w.Apply(gateway(80))
	listens("80", "")
	w.Apply(service("shop/a", web, "web: 8080"))
	listens("80", "")
	w.Apply(service("edge/a", web, "web: 8082"))
	listens("8082", "80=8082")
	w.Apply(service("edge/b", web+more, "web: 8081, more: 9091")) // a is older
	listens("8082", "80=8082")
	w.Apply(service("edge/a", "{number: 79, name: web, protocol: HTTP}", "web: 8082")) // with equal endpoints
	listens("8081", "80=8081")
	w.Apply(gateway(90))
	listens("9091", "90=9091")
	w.Apply(gateway(80))
	listens("8081", "80=8081")
	w.Apply(service("edge/a", web, "web: 80")) // it says that there is no other port
	listens("80", "")
	w.Apply(xdstest.Object("ServiceEntry", "edge/a", "{hosts: [a.example], resolution: STATIC, ports: ["+web+"], endpoints: [{address: 10.0.0.1, serviceAccount: other, ports: {web: 8083}}]}"))
	listens("8081", "80=8081")
	w.Delete("serviceentry/edge/b")
	listens("80", "")
}
