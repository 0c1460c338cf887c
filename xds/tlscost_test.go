package xds_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/xdstest"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// newSecureReference is a reference mesh whose gateways take TLS, and whose clients originate
// it, with a router that runs all gateways beside some sidecars.
func newSecureReference(tb testing.TB, services, gateways, sidecars int) *reference {
	tb.Helper()
	r := newReferenceOf(tb, refmesh.Mesh{Services: services, Gateways: gateways, Originate: true, Localities: 4, LabelSets: 10}, sidecars, true)
	proxy := xdstest.Node{Type: discovery.Router, Namespace: refmesh.Namespace(0), Labels: map[string]string{"app": "edge"}, RouteDelta: true}.Proxy(tb)
	proxy.Local = true // no identity is needed
	r.join(proxy)
	r.sync()
	return r
}

// secureChanges are the changes of TLS: of a Gateway's server, of its routes, of its
// certificate, and of a rule whose clients originate TLS.
func secureChanges() map[string]func(m refmesh.Mesh, n int) refmesh.Change {
	return map[string]func(m refmesh.Mesh, n int) refmesh.Change{
		"Gateway": func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangeGatewayServer(m.Gateways-1, n) },
		"routes":  func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangeGatewayRoutes(m.Gateways-1, n) },
		"secret":  refmesh.Mesh.ChangeDoor,
		"rule":    func(m refmesh.Mesh, n int) refmesh.Change { return m.ChangeRule(refmesh.Target, n) },
	}
}

// TestOneChangeOfTLSCostsTheSameInAnyMesh is TestOneChangeCostsTheSameInAnyMesh for the
// objects behind TLS. A changed secret is sent alone. The routes of the other servers of a port
// follow its names, which they answer with 421.
func TestOneChangeOfTLSCostsTheSameInAnyMesh(t *testing.T) {
	services := longtest.Histories(1_500, 10_000)
	small, large := newSecureReference(t, 100, 10, 10), newSecureReference(t, services, 10, 10)
	for kind, want := range map[string]map[string]int{
		"Gateway": {"LDS": 1, "RDS": 9},
		"routes":  {"VHDS": 1},
		"secret":  {"SDS": 1},
		"rule":    {"CDS": 11*6 + 2, "EDS": 11 * 6}, // as without TLS
	} {
		var got map[string]int
		allocations := func(r *reference) float64 {
			return testing.AllocsPerRun(10, func() {
				r.changes++
				got = r.change(secureChanges()[kind](r.mesh, r.changes))
				r.judge()
			})
		}
		few, many := allocations(small), allocations(large)
		t.Logf("%s: %.0f allocations among 100 services, %.0f among %d", kind, few, many, services)
		if many > 2*few {
			t.Errorf("%s: %.0f allocations among %d services, %.0f among 100", kind, many, services, few)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: resources that 11 proxies lack (-want +got):\n%s", kind, d)
		}
	}
}

// BenchmarkChangeOfTLS is one change, from its object to the resources of a router that runs
// all Gateways, and with the verdicts.
func BenchmarkChangeOfTLS(b *testing.B) {
	for _, kind := range []string{"Gateway", "routes", "secret"} {
		for _, gateways := range []int{10, 100, 1_000, 5_000} {
			b.Run(fmt.Sprintf("%s/servers=%d", kind, gateways), func(b *testing.B) {
				r := newSecureReference(b, 100, gateways, 0)
				b.ReportAllocs()
				for b.Loop() {
					r.changes++
					r.change(secureChanges()[kind](r.mesh, r.changes))
				}
			})
			b.Run(fmt.Sprintf("%s/servers=%d/verdicts", kind, gateways), func(b *testing.B) {
				r := newSecureReference(b, 100, gateways, 0)
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					r.changes++
					r.change(secureChanges()[kind](r.mesh, r.changes))
					b.StartTimer()
					r.judge()
				}
			})
		}
	}
}

// BenchmarkChangeBehindAutoPassthrough is one change among services to which a router
// passes TLS on. Its listener has two filter chains for each service.
func BenchmarkChangeBehindAutoPassthrough(b *testing.B) {
	for _, kind := range []string{"endpoint", "service"} {
		for _, services := range []int{100, 1_000, 5_000} {
			b.Run(fmt.Sprintf("%s/services=%d", kind, services), func(b *testing.B) {
				r := newSecureReference(b, services, 1, 0)
				gateway := r.mesh.Gateway(0)
				gateway.Name = "passes"
				gateway.Spec.(*networking.Gateway).Servers = []*networking.Server{{
					Port: &networking.Port{Number: 15443, Name: "tls", Protocol: "TLS"}, Hosts: []string{"*"},
					Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH},
				}}
				r.change(refmesh.Change{Objects: []*config.Config{gateway}})
				b.ReportAllocs()
				for b.Loop() {
					r.do(kind)
				}
			})
		}
	}
}
