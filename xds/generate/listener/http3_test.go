package listener_test

import (
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestHTTP3: HTTPS servers also have an HTTP/3 listener, unless they request client
// certificates, which Envoy does not verify over QUIC. Other protocols do not reach it.
func TestHTTP3(t *testing.T) {
	t.Parallel()
	mutual := strings.NewReplacer("SIMPLE", "MUTUAL", "443", "444").Replace(secure("b", "b.test"))
	optional := strings.NewReplacer("SIMPLE", "OPTIONAL_MUTUAL", "443", "445").Replace(secure("c", "c.test"))
	socket := strings.Replace(strings.Replace(secure("d", "d.test"), "443", "0", 1), "hosts:", "bind: 'unix:///run/d', hosts:", 1)
	w := xdstest.NewWorld(t, edgeGateway("g", strings.Join([]string{
		secure("a", "a.test"), mutual, optional, socket, "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}",
	}, ", ")), answers("a", "g", "a.test", saying("a")))
	for _, name := range []string{"b", "c", "d"} {
		w.PutSecret(name, secret.TLSCert, secret.TLSKey, secret.Authority)
	}
	names := func() string {
		var out []string
		for _, r := range w.Build(edgeNode, listener.Generator{}) {
			out = append(out, r.Name)
		}
		return strings.Join(out, " ")
	}
	const others = "0.0.0.0_444 0.0.0.0_445 0.0.0.0_80"
	w.SetHTTP3(true)
	if got := names(); got != others+" unix:///run/d_0" {
		t.Errorf("without a certificate: %s", got)
	}
	before := w.Context()
	w.PutSecret("a", secret.TLSCert, secret.TLSKey)
	affected := slices.Collect(listener.Generator{}.Affected(w.View(edgeNode), mesh.Diff(before, w.Context())))
	if got := strings.Join(affected, " "); got != "0.0.0.0_443 udp_0.0.0.0_443" {
		t.Errorf("the certificate affects %s", got)
	}
	if got := names(); got != "0.0.0.0_443 "+others+" udp_0.0.0.0_443 unix:///run/d_0" {
		t.Errorf("with a certificate: %s", got)
	}
	for _, r := range w.Build(edgeNode, listener.Generator{}) {
		l := &listenerv3.Listener{}
		if err := r.Body.UnmarshalTo(l); err != nil {
			t.Fatal(err)
		}
		quic := strings.HasPrefix(r.Name, "udp_")
		if udp := l.GetAddress().GetSocketAddress().GetProtocol().String() == "UDP"; udp != quic || quic != (l.GetUdpListenerConfig().GetQuicOptions() != nil) {
			t.Errorf("%s: %v", r.Name, l)
		}
		if quic && (len(l.GetFilterChains()) != 1 || l.GetFilterChains()[0].GetTransportSocket().GetName() != "envoy.transport_sockets.quic" || len(l.GetListenerFilters()) > 0) {
			t.Errorf("%s: %v", r.Name, l)
		}
	}
	if got := w.Simulate(edgeNode).Run(simulate.Request{Port: 443, Protocol: simulate.HTTPS, Host: "a.test"}).String(); got != "200 a" {
		t.Errorf("HTTPS gets %s", got)
	}
	w.SetHTTP3(false)
	if got := names(); strings.Contains(got, "udp_") {
		t.Errorf("switched off: %s", got)
	}
}
