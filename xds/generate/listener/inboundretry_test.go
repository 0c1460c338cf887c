package listener_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestInboundRetries: the proxy retries a request of which the application got nothing,
// at the same endpoint. It does not retry gRPC calls, since gRPC clients do.
func TestInboundRetries(t *testing.T) {
	t.Parallel()
	s := xdstest.NewWorld(t,
		serving("web", "80, name: http, protocol: HTTP, targetPort: 8080"),
		serving("calls", "81, name: grpc, protocol: GRPC, targetPort: 8081"),
		serving("raw", "82, name: plain, targetPort: 8082"),
	).Simulate(captured)
	for port, want := range map[int]uint32{8080: 2, 8081: 0, 8082: 2, 9999: 2} {
		got := s.Run(simulate.Request{Inbound: true, Address: "10.0.0.1", Port: port, Protocol: simulate.HTTP2})
		policy := got.Action.GetRoute().GetRetryPolicy()
		if n := policy.GetNumRetries().GetValue(); n != want || want > 0 && policy.GetRetryOn() != "reset-before-request" ||
			len(policy.GetRetryHostPredicate()) > 0 || policy.GetHostSelectionRetryMaxAttempts() != 0 {
			t.Errorf("port %d: %v of %s, want %d retries", port, policy, got, want)
		}
	}
}
