package integration

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestQuiet: the server sends only what a change affects.
func TestQuiet(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(50, 50))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/any"), send(t, x.atGateway("/any")).String())
		elsewhere := `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: far}
spec:
  hosts: [far.test]
  exportTo: ["."]
  resolution: STATIC
  ports: [{number: 7000, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`
		sentBy := func(change func() int64) []string {
			t.Helper()
			before := s.responses()
			s.awaitSynced(change(), "edge", "client")
			return typesOf(less(s.responses(), before))
		}
		expectEqual(t, "types sent for an endpoint", sentBy(func() int64 { return s.apply(x.entry(x.v2)) }), []string{"EDS"})
		routes := "VHDS"
		if v == protocol.StateOfTheWorld {
			routes = "RDS"
		}
		expectEqual(t, "types sent for weights", sentBy(func() int64 { return s.apply(x.routes(10, 90)) }), []string{routes})
		expectEqual(t, "types sent for a service of others", sentBy(func() int64 { return s.apply(elsewhere) }), []string{})

		expectEqual(t, "types sent for objects as they are", sentBy(func() int64 {
			again, before := s.revision(), s.storedKeys()
			for range 3 {
				s.apply(x.entry(x.v2), x.rule(), x.routes(10, 90), x.door())
			}
			expectEqual(t, "what the store has after identical objects", s.storedKeys(), before)
			return again
		}), []string{})
		s.expectNothingRejected()
		for _, e := range []*envoy{edge, client} {
			e.expectNothingRejected()
		}
	})
}
