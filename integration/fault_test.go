package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// delay is the least duration of a request that is delayed by 0.7 s. A client's timers count
// whole milliseconds of their own clock, so they may fire a little early; 0.7 s and this differ
// by far more than that.
const delay = 650 * time.Millisecond

// faulty routes the service to v1, with some faults.
func faulty(fault string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [$host]
  gateways: [edge, mesh]
  http:
  - route: [{destination: {host: $host, subset: v1}}]
    fault: $fault
`, "$host", shopHost, "$fault", fault)
}

// TestEnvoyFault changes the faults of a route, on a gateway and a sidecar, while requests run:
// an abort answers, a delay delays, a percentage of 0 does nothing, and a removed fault has no
// effect.
func TestEnvoyFault(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.entry(x.v1, x.v2), x.rule(), x.door(), faulty("{abort: {httpStatus: 418, percentage: {value: 100}}}"))
		edge, client := s.startPair(v)
		listeners := edge.mustHold()
		for _, step := range []struct {
			name, document, want string
			least                time.Duration
		}{
			{name: "abort", document: faulty("{abort: {httpStatus: 418, percentage: {value: 100}}}"), want: "418"},
			{name: "abort with a gRPC status", document: faulty("{abort: {grpcStatus: UNAVAILABLE, percentage: {value: 100}}}"), want: "200"},
			{name: "delay", document: faulty("{delay: {fixedDelay: 0.7s, percentage: {value: 100}}}"), want: "v1", least: delay},
			{name: "delay, then abort", document: faulty("{delay: {fixedDelay: 0.7s, percentage: {value: 100}}, abort: {httpStatus: 503, percentage: {value: 100}}}"), want: "503", least: delay},
			{name: "0 percent", document: faulty("{delay: {fixedDelay: 0.7s, percentage: {value: 0}}, abort: {httpStatus: 503, percentage: {value: 0}}}"), want: "v1"},
			{name: "removed", document: x.routes(0, 100), want: "v2"},
		} {
			s.awaitSynced(s.apply(step.document), "edge", "client")
			for name, q := range map[string]request{"gateway": x.atGateway("/"), "sidecar": x.atSidecar("/")} {
				began := time.Now()
				got := send(t, q)
				took := time.Since(began)
				if got.String() != step.want || took < step.least || step.least == 0 && took >= delay {
					t.Errorf("%s, %s: %s after %s, want %s after %s", step.name, name, got, took, step.want, step.least)
				}
			}
		}
		for name, h := range edge.mustHold() {
			if before, ok := listeners[name]; ok && name == fmt.Sprintf("listeners 127.0.0.1_%d", x.gateway) && before != h {
				t.Errorf("%s was sent again for a route: %v, then %v", name, before, h)
			}
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestGRPCFault: gRPC clients of each language inject the faults of a VirtualService
// themselves, and stop when they are removed.
func TestGRPCFault(t *testing.T) {
	t.Parallel()
	g := startGRPCScene(t, serverOptions{}, grpcOnlyTo(shopHost, "v1"))
	for _, c := range g.clients {
		awaitReply(t, c.call(anyMethod), "v1")
	}
	for _, step := range []struct {
		name, document, want string
		least                time.Duration
	}{
		{name: "abort with a gRPC status", document: faulty("{abort: {grpcStatus: RESOURCE_EXHAUSTED, percentage: {value: 100}}}"), want: "500"},
		{name: "abort with a status of HTTP", document: faulty("{abort: {httpStatus: 503, percentage: {value: 100}}}"), want: "503"},
		{name: "delay", document: faulty("{delay: {fixedDelay: 0.7s, percentage: {value: 100}}}"), want: "v1", least: delay},
		{name: "0 percent", document: faulty("{abort: {httpStatus: 503, percentage: {value: 0}}}"), want: "v1"},
		{name: "removed", document: grpcOnlyTo(shopHost, "v2"), want: "v2"},
	} {
		g.awaitClients(g.apply(step.document))
		for _, c := range g.clients {
			awaitReply(t, c.call(anyMethod), step.want) // a client applies the change a moment after its ACK
			began := time.Now()
			if got := send(t, c.call(anyMethod)); got.String() != step.want || time.Since(began) < step.least {
				t.Errorf("%s, %s: %s after %s, want %s after %s: %s", step.name, c.name, got, time.Since(began), step.want, step.least, got.body)
			}
		}
	}
	g.expectNothingRejected()
}
