package integration

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyCallsHeadlessServices: clients whose connections are captured call the workloads of two
// headless services on one port by their addresses, and reach the one that they name. A new workload
// is known, and one that is gone is not, though nothing else may pass.
func TestEnvoyCallsHeadlessServices(t *testing.T) {
	needEnvoy(t)
	needNamespaces(t)
	const port = "5432"
	workloads := map[string]string{"db-1": "10.0.0.11", "db-2": "10.0.0.12", "queue-1": "10.0.0.13", "db-3": "10.0.0.14"}
	service := func(name string) string {
		return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  location: MESH_INTERNAL
  resolution: NONE
  ports: [{number: 5432, name: tcp, protocol: TCP}]
  workloadSelector: {labels: {app: $name}}
`, "$name", name)
	}
	workload := func(name, app string) string {
		return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: $name, namespace: shop}
spec: {address: $address, labels: {app: $app}}
`, "$name", name, "$address", workloads[name], "$app", app)
	}
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		client, peer := newNamespace(t, "client"), newNamespace(t, "peer")
		cable(client, peer)
		for name, address := range workloads {
			peer.ip("addr", "add", address+"/24", "dev", "p")
			serveTCPUpstream(t, name, peer.listen(address+":"+port))
		}
		s := startServer(t, serverOptions{})
		s.apply(service("db"), service("queue"), workload("db-1", "db"), workload("db-2", "db"), workload("queue-1", "queue"),
			sidecarOf("{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}"))
		client.nft(captureBoth)
		e := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", interception: "REDIRECT", variant: v, in: client, xds: startSocketRelay(t, s.xds)})
		e.awaitWarm()
		for _, name := range []string{"db-1", "db-2", "queue-1"} {
			awaitGreetingFrom(t, client, captureMark, workloads[name]+":"+port, name)
		}
		closed := func(why string) {
			t.Helper()
			eventually(t, why, func() error {
				if greets(client, captureMark, workloads["db-3"]+":"+port, "", "db-3") == nil {
					return fmt.Errorf("db-3 is reached")
				}
				return nil
			})
		}
		closed("an address of no service is closed")
		for to, want := range map[string]string{"db.shop.test:5432": "outbound|5432||db.shop.test", "10.0.0.13:5432": "outbound|5432||queue.shop.test"} {
			got, err := s.explain("client", to, request{})
			if err != nil || len(got.Destinations) != 1 || got.Destinations[0].Cluster != want {
				t.Errorf("explained of %s: %v %+v, want %s", to, err, got.Destinations, want)
			}
		}

		before := listenersOf(e.mustHold())
		s.awaitSynced(s.apply(workload("db-3", "db")), "client")
		awaitGreetingFrom(t, client, captureMark, workloads["db-3"]+":"+port, "db-3")
		after := listenersOf(e.mustHold())
		delete(after, "10.0.0.14_5432")
		for name, was := range before {
			if after[name] != was || len(after) != len(before) {
				t.Errorf("a new workload has touched listeners: they were %v and are %v", before, after)
				break
			}
		}
		s.awaitSynced(s.remove(workload("db-3", "db")), "client")
		closed("a workload that is gone is closed")
		e.expectPassed("cluster.outbound|5432||db.shop.test;.upstream_cx_total", "cluster.outbound|5432||queue.shop.test;.upstream_cx_total")
		s.expectNothingRejected()
		e.expectNothingRejected()
	})
}
