package integration

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// ledgerEntry is a TCP service with one endpoint.
const ledgerEntry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ledger, namespace: shop}
spec:
  hosts: [ledger.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1, ports: {tcp: $target}}]
`

// TestEnvoyTCP connects through the listener of a TCP service while its endpoints change and
// go.
func TestEnvoyTCP(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		port, one, two := freePort(t), startTCPUpstream(t, "one"), startTCPUpstream(t, "two")
		s.apply(fill(ledgerEntry, "$port", port, "$target", one))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		awaitGreeting(t, port, "one")
		s.awaitSynced(s.apply(fill(ledgerEntry, "$port", port, "$target", two)), "client")
		awaitGreeting(t, port, "two")
		s.awaitSynced(s.remove(fill(ledgerEntry, "$port", port, "$target", two)), "client")
		awaitClosed(t, port)
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoySidecarListeners: a Sidecar defines every listener of a workload, egress and
// ingress, with port and bind, for HTTP and TCP.
func TestEnvoySidecarListeners(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		ledger := startTCPUpstream(t, "ledger")
		app, tcpApp := startUpstream(t, "app"), startTCPUpstream(t, "tcp-app")
		out, tcpOut, in, tcpIn := freePort(t), freePort(t), freePort(t), freePort(t)
		sidecar := fill(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  ingress:
  - port: {number: $in, protocol: HTTP, name: http}
    bind: 127.0.0.1
    defaultEndpoint: 127.0.0.1:$app
  - port: {number: $tcpIn, protocol: TCP, name: tcp}
    bind: 127.0.0.1
    defaultEndpoint: 127.0.0.1:$tcpApp
  egress:
  - port: {number: $out, protocol: HTTP, name: http}
    bind: 127.0.0.1
    hosts: ["shop/reviews.shop.test"]
  - port: {number: $tcpOut, protocol: TCP, name: tcp}
    bind: 127.0.0.1
    hosts: ["shop/ledger.shop.test"]
`, "$tcpIn", tcpIn, "$tcpApp", tcpApp, "$tcpOut", tcpOut, "$in", in, "$app", app.port, "$out", out)
		// An egress listener with a port carries the services that have that port.
		x.service = out
		tcp := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ledger, namespace: shop}
spec:
  hosts: [ledger.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1, ports: {tcp: $target}}]
`, "$port", tcpOut, "$target", ledger)
		other := startUpstream(t, "other")
		otherPort := freePort(t)
		unseen := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: unseen, namespace: shop}
spec:
  hosts: [unseen.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $target}}]
`, "$port", otherPort, "$target", other.port)

		s.apply(x.all(0, 100), tcp, unseen, sidecar)
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", labels: "app=client", ip: "10.0.0.2", variant: v})
		awaitReply(t, request{port: out, host: shopHost}, "v2")
		awaitReply(t, request{port: in, host: "anything.test"}, "app")
		awaitGreeting(t, tcpOut, "ledger")
		awaitGreeting(t, tcpIn, "tcp-app")
		client.awaitCluster(fmt.Sprintf("outbound|%d||unseen.shop.test", otherPort), false)
		if listening(local(otherPort)) {
			t.Error("a service that the Sidecar does not import has a listener")
		}

		// Without the Sidecar the workload sees every service, and has no ingress listener.
		s.awaitSynced(s.remove(sidecar), "client")
		awaitReply(t, request{port: otherPort, host: "unseen.shop.test"}, "other")
		client.awaitCluster(fmt.Sprintf("outbound|%d||unseen.shop.test", otherPort), true)
		awaitReply(t, request{port: out, host: shopHost}, "v2")
		awaitClosed(t, in)
		awaitClosed(t, tcpIn)
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}
