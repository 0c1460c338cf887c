package integration

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestSmokeGateway is the shortest path from YAML to a request.
func TestSmokeGateway(t *testing.T) {
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(0, 100))
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
	awaitReply(t, x.atGateway("/"), "v2")
	revision := s.apply(x.routes(100, 0))
	s.awaitSynced(revision, "edge")
	awaitReply(t, x.atGateway("/"), "v1")
	s.expectNothingRejected()
	edge.expectNothingRejected()
	if err := s.process.terminate(t); err != nil {
		t.Errorf("the server ended with %v on SIGTERM", err)
	}
}
