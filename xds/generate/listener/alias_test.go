package listener_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAliasesBySNI: where SNI tells TLS services apart, a service is also found by its aliases.
func TestAliasesBySNI(t *testing.T) {
	t.Parallel()
	const h, a, b = "k.default.svc.cluster.local", "outbound|443||a.example.com", "outbound|443||b.example.com"
	w := xdstest.NewWorld(t, at("b", "443, name: tls, protocol: TLS"), at("a", "443, name: tls, protocol: TLS"))
	w.Offer(discovery.Row{Hostname: h, Namespace: "default", Services: []*discovery.Service{{
		Hostname: h, Address: discovery.UnspecifiedIP, Resolution: discovery.DNSLB, MeshExternal: true,
		Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Name: "k", Namespace: "default", ExternalName: "a.example.com"},
	}}})
	for sni, want := range map[string]string{"a.example.com": a, h: a, "k.default": a, "k": a, "b.example.com": b} {
		got := w.Simulate(captured).Run(simulate.Request{Address: "192.0.2.1", Port: 443, Protocol: simulate.TLS, SNI: sni}).String()
		if got != want {
			t.Errorf("%s leads to %s, want %s", sni, got, want)
		}
	}
}
