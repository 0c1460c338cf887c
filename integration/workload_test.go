package integration

import (
	"fmt"
	"strings"
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

// TestAnEntryTellsWhoseLabelsItReplaces: an apply and a dry run name the connected proxy that an
// entry gives other labels or another locality, if other objects then apply to it. Nothing is
// said of a proxy for which nothing changes, and of a gateway, which keeps its labels.
func TestAnEntryTellsWhoseLabelsItReplaces(t *testing.T) {
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(100, 0), fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: callers, namespace: shop}
spec:
  hosts: [callers.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  workloadSelector: {labels: {team: callers}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: narrow, namespace: shop}
spec: {workloadSelector: {labels: {app: narrow}}, egress: [{hosts: [shop/reviews.shop.test]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: clients, namespace: shop}
spec: {workloadSelector: {labels: {app: client}}, egress: [{hosts: ['*/*']}]}
`, "$port", freePort(t)))
	s.startPair(protocol.Delta) // edge is at 10.0.0.1, client at 10.0.0.2
	entry := func(address, labels string) string {
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop}\nspec: {address: %s, labels: {team: callers%s}}\n", address, labels)
	}
	const told = "the proxy client.shop at its address is connected, and goes by the labels and the locality of the entry: sidecar/shop/narrow will apply to it, sidecar/shop/clients will not any more"
	for _, c := range []struct{ name, document, want string }{
		{"the same labels", entry("10.0.0.2", ", app: client"), ""},
		{"other labels", entry("10.0.0.2", ", app: narrow"), told},
		{"at the address of a gateway", entry("10.0.0.1", ", app: narrow"), ""},
		{"at the address of nobody", entry("10.0.0.9", ", app: narrow"), ""},
	} {
		dry := s.try(c.document, "apply", "-f", "-", "--dry-run=server")
		if has := strings.Contains(dry.stderr, "goes by the labels"); dry.code != 0 || has != (c.want != "") || !strings.Contains(dry.stderr, c.want) {
			t.Errorf("%s: the dry run says %+v", c.name, dry)
		}
	}
	out := s.try(entry("10.0.0.2", ", app: narrow"), "apply", "-f", "-", "--strict")
	if out.code != 0 || !strings.Contains(out.stderr, told) {
		t.Errorf("the apply says %+v", out)
	}
	eventually(t, "the deletion tells it too", func() error {
		out := s.try("", "delete", "workloadentry/vm", "-n", "shop", "--dry-run=server")
		if !strings.Contains(out.stderr, "sidecar/shop/clients will apply to it, sidecar/shop/narrow will not any more") {
			return fmt.Errorf("%+v", out)
		}
		return nil
	})
}

// TestEnvoyGatewayKeepsItsLabels: a workload beside a gateway, at its address, takes none of the
// gateway's labels away. The gateway goes on to serve.
func TestEnvoyGatewayKeepsItsLabels(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, _ := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		l := startLoad(t, "gateway", x.atGateway("/"))
		listeners := edge.mustHold()
		s.awaitSynced(s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: beside, namespace: shop}
spec:
  hosts: [beside.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: beside}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: beside, namespace: shop}
spec: {address: 10.0.0.1, labels: {app: beside}}
`, "$port", freePort(t))), "edge")
		l.sample(50)
		l.expectUnharmed()
		for name := range listeners {
			if _, has := edge.mustHold()[name]; !has {
				t.Errorf("the gateway has lost %s", name)
			}
		}
		s.expectNothingRejected()
	})
}
