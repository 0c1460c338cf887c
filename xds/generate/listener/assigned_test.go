package listener_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// assigned is a world in which each service has an assigned address.
func assigned(t *testing.T) *xdstest.World {
	w := xdstest.NewWorld(t, older, newer, web)
	w.Assign("default", "z.example.com", "240.240.0.1")
	w.Assign("default", "a.example.com", "240.240.0.2")
	w.Assign("default", "web.example.com", "240.240.0.3")
	return w
}

// TestTCPServicesOfOnePortDoNotMeet: at its assigned address each TCP service gets its
// own connections. On the loopback address the oldest keeps the port.
func TestTCPServicesOfOnePortDoNotMeet(t *testing.T) {
	t.Parallel()
	s := assigned(t).Simulate(xdstest.Node{DNSCapture: true})
	for address, want := range map[string]string{
		"240.240.0.1": "outbound|5432||z.example.com",
		"240.240.0.2": "outbound|5432||a.example.com",
		"127.0.0.1":   "outbound|5432||z.example.com",
		"240.240.0.3": "no listener",
	} {
		if got := s.Run(simulate.Request{Address: address, Port: 5432, Protocol: simulate.TCP}).String(); got != want {
			t.Errorf("%s:5432: got %s, want %s", address, got, want)
		}
	}
	for _, host := range []string{"web.example.com", "240.240.0.3", "240.240.0.3:80"} {
		if got := s.Run(simulate.Request{Address: "240.240.0.3", Host: host}).String(); got != "outbound|80||web.example.com" {
			t.Errorf("%s at the address of web: %s", host, got)
		}
	}
}

// TestListenersAtAssignedAddresses: which proxies have them, and that they disappear with
// the address, the service or its visibility.
func TestListenersAtAssignedAddresses(t *testing.T) {
	t.Parallel()
	loopback := []string{"127.0.0.1_5432", "127.0.0.1_80"}
	w := assigned(t)
	for name, c := range map[string]struct {
		node xdstest.Node
		want []string
	}{
		"a proxy that says nothing": {xdstest.Node{}, loopback},
		"one that captures DNS":     {xdstest.Node{DNSCapture: true}, append(slices.Clone(loopback), "240.240.0.1_5432", "240.240.0.2_5432", "240.240.0.3_80")},
		"one with IPv6 only": {xdstest.Node{IP: "fd00::1", DNSCapture: true}, []string{
			"2001:2::f0f0:1_5432", "2001:2::f0f0:2_5432", "2001:2::f0f0:3_80", "::1_5432", "::1_80"}},
	} {
		if d := cmp.Diff(c.want, w.Simulate(c.node).Listeners()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	w.Delete("serviceentry/default/z-older")
	w.Apply(xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/web.example.com', '*/z.example.com']}]}"))
	if d := cmp.Diff([]string{"127.0.0.1_80", "240.240.0.3_80"}, w.Simulate(xdstest.Node{DNSCapture: true}).Listeners()); d != "" {
		t.Errorf("of what is gone or not seen (-want +got):\n%s", d)
	}
}
