package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestUnknownNamesAreAnswered requests resources that do not exist. A proxy waits for each
// without limit, so each gets an answer, and another when it appears.
func TestUnknownNamesAreAnswered(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.door())
		client := xdstest.Dial(t, s.xds, xdstest.ClientOptions{
			Node: xdstest.NewNode("router", "10.0.0.1", "edge", "shop", map[string]string{"app": "edge"}), Variant: v,
		})
		cluster := fmt.Sprintf("outbound|%d||%s", x.service, shopHost)
		for typeURL, name := range map[string]string{xdstest.EndpointType: cluster, xdstest.RouteType: "http.1"} {
			client.Subscribe(typeURL, name)
			a := client.AwaitAnswer(typeURL, 0)
			if _, empty := a.Resources[name]; !empty && !slices.Contains(a.Removed, name) && v == protocol.Delta {
				t.Errorf("%s of %s is not answered: %+v", name, typeURL, a)
			}
		}
		s.apply(x.entry(x.v1))
		client.Await("endpoints of the service, which exists now", func(held func(string) map[string]xdstest.Held) bool {
			return strings.Contains(held(xdstest.EndpointType)[cluster].Body.String(), fmt.Sprint(x.v1.port))
		})
		s.remove(x.entry(x.v1))
		client.Await("no endpoints, as the service is gone", func(held func(string) map[string]xdstest.Held) bool {
			return !strings.Contains(held(xdstest.EndpointType)[cluster].Body.String(), fmt.Sprint(x.v1.port)) || v == protocol.StateOfTheWorld
		})
		s.expectNothingRejected()
	})
}

// TestSlowProxyHoldsUpNobody stops a proxy while changes come. The other one gets them at once,
// and the stopped one gets the last state when it continues.
func TestSlowProxyHoldsUpNobody(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		if err := syscall.Kill(edge.process.pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(edge.process.pid(), syscall.SIGCONT) })
		var last int64
		for range 20 {
			s.apply(x.routes(50, 50), x.entry(x.v2))
			last = s.apply(x.routes(0, 100), x.entry(x.v1, x.v2))
			s.awaitSynced(last, "client")
		}
		awaitReply(t, x.atSidecar("/"), "v2")
		if err := syscall.Kill(edge.process.pid(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		s.awaitSynced(last, "edge")
		awaitReply(t, x.atGateway("/"), "v2")
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestWorkloadEntryRelabelsItsProxy: if a service selects the WorkloadEntry at a proxy's
// address, the proxy has the entry's labels. So a Sidecar begins and ceases to select the
// proxy.
func TestWorkloadEntryRelabelsItsProxy(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		const machines = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: machines, namespace: shop}
spec:
  hosts: [machines.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 7000, name: http, protocol: HTTP}]
  workloadSelector: {labels: {kind: vm}}
`
		const sidecar = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: narrow, namespace: shop}
spec:
  workloadSelector: {labels: {role: narrow}}
  egress: [{hosts: ["./left.shop.test"]}]
`
		const entry = `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm-2, namespace: shop}
spec: {address: $ip, labels: {role: narrow, kind: vm}}
`
		s.apply(append(twins(1), machines, sidecar)...)
		client := connect(t, s, xdstest.ClientOptions{
			Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", map[string]string{"role": "wide"}), Variant: v, Follow: true,
		})
		services := func(want int) {
			t.Helper()
			client.Await(fmt.Sprintf("clusters of %d services", want), func(held func(string) map[string]xdstest.Held) bool {
				return outbound(held(xdstest.ClusterType)) == want
			})
		}
		services(3)
		s.apply(fill(entry, "$ip", "10.0.0.2"))
		services(1)
		s.apply(fill(entry, "$ip", "10.0.0.3"))
		services(3)
		s.apply(fill(entry, "$ip", "10.0.0.2"))
		services(1)
		s.remove(fill(entry, "$ip", "10.0.0.2"))
		services(3)
		s.expectNothingRejected()
	})
}

// TestEnvoyMeshConfig starts the server with a mesh configuration.
func TestEnvoyMeshConfig(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{meshConfig: `
outboundTrafficPolicy: {mode: REGISTRY_ONLY}
accessLogFile: /dev/stdout
connectTimeout: 4.25s
`}), newShop(t)
		s.apply(x.all(100, 0))
		_, client := s.startPair(v)
		awaitReply(t, x.atSidecar("/logged"), "v1")
		awaitReply(t, request{port: x.service, host: "elsewhere.test"}, "502")
		client.awaitConfig(`"connect_timeout": "4.250s"`)
		eventually(t, "the request is in the access log", func() error {
			if out := client.process.output(); !strings.Contains(out, "/logged") {
				return fmt.Errorf("the log has no such line")
			}
			return nil
		})
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyManyServices sends an Envoy some thousand services in one batch, and removes them
// again.
func TestEnvoyManyServices(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		const services = 1500
		s, port, last := startServer(t, serverOptions{}), freePort(t), startUpstream(t, "last")
		var documents []string
		for i := range services {
			documents = append(documents, fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s$i, namespace: shop}
spec:
  hosts: [s$i.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $target}}]
`, "$i", i, "$port", port, "$target", last.port))
		}
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		s.awaitSynced(s.apply(documents...), "client")
		awaitReply(t, request{port: port, host: fmt.Sprintf("s%d.shop.test", services-1)}, "last")
		client.awaitWarm()
		before := s.sentResources()
		s.awaitSynced(s.remove(documents[0]), "client")
		sent := less(s.sentResources(), before)
		if limit := 10; v == protocol.Delta && sent["CDS"]+sent["EDS"] > limit {
			t.Errorf("one service of %d went, and this was sent: %v", services, sent)
		}
		s.awaitSynced(s.remove(documents[1:]...), "client")
		awaitClosed(t, port)
		t.Log("sent for one that went: ", slices.Sorted(maps.Keys(sent)), sent)
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}
