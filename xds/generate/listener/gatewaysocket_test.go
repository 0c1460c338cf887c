package listener_test

import (
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGatewaySockets: servers with Unix domain sockets have port 0; the sockets tell them
// apart.
func TestGatewaySockets(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, at("a", http5432), at("b", tcp5432),
		xdstest.Object("Gateway", "g", `{selector: {app: edge}, servers: [
		  {port: {number: 0, name: h, protocol: HTTP}, bind: 'unix:///run/h', hosts: [a.example.com]},
		  {port: {number: 0, name: o, protocol: HTTP}, bind: 'unix:///run/o', hosts: [o.example.com]},
		  {port: {number: 0, name: t, protocol: TCP}, bind: 'unix:///run/t', hosts: ['*']}]}`),
		xdstest.Object("Gateway", "late", "{selector: {app: edge}, servers: [{port: {name: t, protocol: TCP}, bind: 'unix:///run/h', hosts: ['*']}]}"),
		routes("a", "hosts: [a.example.com, o.example.com], gateways: [g], http: [{route: ["+to("a")+"]}]"),
		routes("b", "hosts: [b.example.com], gateways: [g, late], tcp: [{route: ["+to("b")+"]}]"))
	node := xdstest.Node{Type: discovery.Router, Labels: map[string]string{"app": "edge"}}
	for _, c := range []struct {
		socket, host, want string
		protocol           simulate.Protocol
	}{
		{"unix:///run/h", "a.example.com", "outbound|5432||a.example.com", simulate.HTTP},
		{"unix:///run/h", "o.example.com", "no virtual host", simulate.HTTP},
		{"unix:///run/o", "o.example.com", "outbound|5432||a.example.com", simulate.HTTP},
		{"unix:///run/t", "", "outbound|5432||b.example.com", simulate.TCP},
		{"unix:///run/none", "", "no listener", simulate.TCP},
	} {
		if got := w.Simulate(node).Run(simulate.Request{Address: c.socket, Host: c.host, Protocol: c.protocol}).String(); got != c.want {
			t.Errorf("%s, host %q: it goes to %s, want %s", c.socket, c.host, got, c.want)
		}
	}
	want := []string{"unix:///run/h_0", "unix:///run/o_0", "unix:///run/t_0"}
	if got := w.Simulate(node).Listeners(); !slices.Equal(got, want) {
		t.Errorf("the listeners are %q, want %q", got, want)
	}
}
