package integration

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
	"github.com/portolan-mesh/portolan/xds/names/probe"
)

// TestProbesPassTheRulesOfCapture: where what the agent's user sends to the machine itself is
// captured, and no sidecar takes it, a probe of the machine's address reaches the application.
func TestProbesPassTheRulesOfCapture(t *testing.T) {
	needNamespaces(t)
	for _, mode := range []capture.Mode{capture.Redirect, capture.TProxy} {
		t.Run(string(mode), func(t *testing.T) {
			n, peer := newNamespace(t, "workload"), newNamespace(t, "peer")
			n.ip("link", "add", "w", "type", "veth", "peer", "name", "p", "netns", peer.name)
			peer.up("p")
			n.up("w", "10.0.0.1/24", "fd00::1/64")
			n.up("lo", "::6/128")
			serveTCPUpstream(t, "app", n.listen(":8080"))
			filter := n.firewall()
			if err := filter.Apply(t.Context(), capture.Rules{Mode: mode, ProxyUser: "0"}); err != nil {
				t.Fatal(err)
			}
			for _, address := range []string{"10.0.0.1", "fd00::1"} {
				p := &probe.Probe{Timeout: durationpb.New(10 * time.Second), Check: &probe.Probe_TcpSocket{TcpSocket: &probe.Probe_TCPSocket{Port: 8080}}}
				checker := health.Checker{Addresses: func() []string { return []string{address} }}
				eventually(t, "the probe of "+address, func() error {
					return n.inside(func() error { return checker.Check(t.Context(), p) })
				})
				plain := health.Checker{} // which takes the address for that of another machine
				p.GetTcpSocket().Host = address
				if err := n.inside(func() error { return plain.Check(t.Context(), p) }); err == nil {
					t.Errorf("%s is not captured: this test tests nothing", address)
				}
			}
		})
	}
}
