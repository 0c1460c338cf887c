package listener_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestBothLoopbacks: a sidecar without capture listens at the loopback address of each family that it
// has.
func TestBothLoopbacks(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, web)
	for more, want := range map[string]int{"": 0, "fd00::1": 1} {
		n := xdstest.Node{IP: "10.9.9.9"}
		if more != "" {
			n.MoreIPs = []string{more}
		}
		found := 0
		for _, r := range w.Build(n, listener.Generator{}) {
			l := &listenerv3.Listener{}
			if err := r.Body.UnmarshalTo(l); err != nil {
				t.Fatal(err)
			}
			if l.GetAddress().GetSocketAddress().GetAddress() != "127.0.0.1" {
				continue
			}
			found++
			if got := l.GetAdditionalAddresses(); len(got) != want || want == 1 && got[0].GetAddress().GetSocketAddress().GetAddress() != "::1" {
				t.Errorf("with %q besides: %s has %v", more, l.GetName(), got)
			}
		}
		if found == 0 {
			t.Errorf("with %q besides: no listener", more)
		}
	}
}
