package integration

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestWorkloadEntryMoves follows a workload: it joins, is relabelled from one service to
// another, moves to another address, and leaves.
func TestWorkloadEntryMoves(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		port := freePort(t)
		here, there := startUpstream(t, "here"), startUpstream(t, "there")
		service := func(name string) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: $name}}
`, "$name", name, "$port", port)
		}
		entry := func(app string, u *upstream) string {
			return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm-1, namespace: shop}
spec: {address: 127.0.0.1, ports: {http: $port}, labels: {app: $app}}
`, "$port", u.port, "$app", app)
		}
		s.apply(service("red"), service("blue"))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		red, blue := request{port: port, host: "red.shop.test"}, request{port: port, host: "blue.shop.test"}
		awaitReply(t, red, "503")
		awaitReply(t, blue, "503")
		before := s.sentResources()
		for _, step := range []struct {
			name      string
			change    func() int64
			red, blue string
		}{
			{"added", func() int64 { return s.apply(entry("red", here)) }, "here", "503"},
			{"relabelled", func() int64 { return s.apply(entry("blue", here)) }, "503", "here"},
			{"moved", func() int64 { return s.apply(entry("blue", there)) }, "503", "there"},
			{"relabelled and moved", func() int64 { return s.apply(entry("red", here)) }, "here", "503"},
			{"deleted", func() int64 { return s.remove(entry("red", here)) }, "503", "503"},
		} {
			s.awaitSynced(step.change(), "client")
			awaitReply(t, red, step.red)
			awaitReply(t, blue, step.blue)
			if t.Failed() {
				t.Fatalf("after the entry was %s", step.name)
			}
		}
		expectEqual(t, "types sent for workload entries", typesOf(less(s.sentResources(), before)), []string{"EDS"})
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}
