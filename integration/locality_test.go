package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyLocalityOfAProxy: where a proxy is decides which endpoints it calls first. Labels
// say it before its node does, and the node before the entry of its workload. The labels of an
// entry replace the node's.
func TestEnvoyLocalityOfAProxy(t *testing.T) {
	t.Parallel()
	s, x, port := startServer(t, serverOptions{}), newShop(t), freePort(t)
	entry := x.entry()
	for _, locality := range []string{"eu/a", "us/b"} {
		entry += fmt.Sprintf("  - {address: 127.0.0.1, ports: {http: %d}, locality: %s}\n", startUpstream(t, locality).port, locality)
	}
	s.apply(entry, policyFor("{outlierDetection: {}}"), fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: callers, namespace: shop}
spec:
  hosts: [callers.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: client}}
`, "$port", port))
	only := func(name string) func(map[string]int) bool {
		return func(got map[string]int) bool { return got[name] == 20 }
	}
	both := func(got map[string]int) bool { return got["eu/a"] > 0 && got["us/b"] > 0 }
	eu, us := only("eu/a"), only("us/b")
	for i, c := range []struct {
		name         string
		labels, node string // of the proxy
		entry        string // fields of the WorkloadEntry, empty for none
		want         func(map[string]int) bool
	}{
		{name: "nothing says it", want: both},
		{name: "the node", node: "us/b", want: us},
		{name: "a label, dots for slashes", labels: "istio-locality=eu.a", want: eu},
		{name: "a label with slashes", labels: "istio-locality=us/b", want: us},
		{name: "labels of the topology", labels: "topology.kubernetes.io/region=eu,topology.kubernetes.io/zone=a", want: eu},
		{name: "a label before the node", labels: "istio-locality=eu.a", node: "us/b", want: eu},
		{name: "a label before those of the topology", labels: "istio-locality=us.b,topology.kubernetes.io/region=eu,topology.kubernetes.io/zone=a", want: us},
		{name: "the entry", entry: "labels: {app: client}, locality: us/b", want: us},
		{name: "the node before the entry", node: "eu/a", entry: "labels: {app: client}, locality: us/b", want: eu},
		{name: "a label of the entry", entry: "labels: {app: client, istio-locality: us.b}", want: us},
		{name: "a label of the entry before the node", node: "eu/a", entry: "labels: {app: client, istio-locality: us.b}", want: us},
		{name: "the labels of the entry replace the node's", labels: "istio-locality=eu.a", entry: "labels: {app: client}, locality: us/b", want: us},
		{name: "the node before the entry, whose labels replace the node's", labels: "istio-locality=us.b", node: "eu/a", entry: "labels: {app: client}, locality: us/b", want: eu},
	} {
		t.Run(c.name, func(t *testing.T) {
			ip := fmt.Sprintf("10.0.1.%d", i+1)
			if c.entry != "" {
				s.apply(fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: client-%d, namespace: shop}\nspec: {address: %s, %s}\n", i, ip, c.entry))
			}
			client := s.startEnvoy(envoyOptions{kind: "sidecar", name: fmt.Sprintf("client-%d", i), ip: ip, labels: c.labels, locality: c.node, variant: protocol.Delta})
			awaitAnswersOf(t, c.name, x.atSidecar("/"), c.want)
			if err := client.process.terminate(t); err != nil {
				t.Errorf("Envoy ended with: %v", err)
			}
		})
	}
}

// TestEnvoyPortsOfOneNameInSeveralEntries: several ServiceEntries give one host ports of one
// name and different numbers. Each port has the endpoints of its own entry, where the control
// plane pushes them and where the proxy resolves them.
func TestEnvoyPortsOfOneNameInSeveralEntries(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		for resolution, address := range map[string]string{"STATIC": "127.0.0.1", "DNS": "localhost"} {
			kind := strings.ToLower(resolution)
			host := "of-" + kind + ".shop.test"
			ports := map[string]int{}
			for _, name := range []string{"one", "two", "three"} {
				ports[name] = freePort(t)
				s.apply(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: %s
  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: %s, ports: {http: %d}}]
`, name+"-"+kind, host, resolution, ports[name], address, startUpstream(t, name).port))
			}
			s.awaitSynced(s.revision(), "client")
			for name, port := range ports {
				awaitAnswersOf(t, resolution+" "+name, request{port: port, host: host}, func(got map[string]int) bool { return got[name] == 20 })
			}
		}
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}
