package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// speaker is an object that speaks for a.example, which namespace shop owns. NS stands for its
// own namespace.
type speaker struct {
	kind, spec string
	// effect says whether the object has effect for a.example.
	effect func(*xdstest.World) bool
}

// attic is a client in the namespace of the speakers.
func attic(w *xdstest.World) *mesh.View { return w.View(xdstest.Node{Namespace: "attic"}) }

func router(w *xdstest.World) *mesh.View {
	return w.View(xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"app": "edge"}})
}

func speakers() map[string]speaker {
	const route = "route: [{destination: {host: away.example}}]"
	routed := func(w *xdstest.World) bool {
		v := attic(w)
		return v.VirtualServiceAt(v.Egress()[0], "a.example") != nil
	}
	ruled := func(w *xdstest.World) bool { return attic(w).Rule(attic(w).Service("a.example")) != nil }
	streamed := func(w *xdstest.World) bool { v := attic(w); return len(v.Streams(v.Egress()[0], "a.example")) > 0 }
	atGateway := func(is func(*mesh.View, *routing.Server) bool) func(w *xdstest.World) bool {
		return func(w *xdstest.World) bool {
			v := router(w)
			return slices.ContainsFunc(v.Gateway().Listeners, func(l *routing.Listener) bool {
				return slices.ContainsFunc(l.Servers, func(s *routing.Server) bool { return is(v, s) })
			})
		}
	}
	served := atGateway(func(_ *mesh.View, s *routing.Server) bool { return s.Gateway.Config.Name == "speaker" })
	forwarded := atGateway(func(v *mesh.View, s *routing.Server) bool {
		vs, _ := v.GatewayTCPRoute(s)
		return vs != nil
	})
	passed := atGateway(func(v *mesh.View, s *routing.Server) bool {
		for m := range v.GatewayNames(s) {
			return m.Names[0] == "a.example"
		}
		return false
	})
	return map[string]speaker{
		"a VirtualService":                {"VirtualService", "{hosts: [a.example, own.example], http: [{" + route + "}]}", routed},
		"a VirtualService with a pattern": {"VirtualService", "{hosts: ['*.example'], http: [{" + route + "}]}", routed},
		"a VirtualService of a gateway": {"VirtualService", "{hosts: [a.example, own.example], gateways: [edge/gw], http: [{" + route + "}]}", func(w *xdstest.World) bool {
			return len(router(w).VirtualServices("edge/gw", "a.example")) > 0
		}},
		"a VirtualService that delegates":  {"VirtualService", "{hosts: [a.example], http: [{delegate: {name: leaf, namespace: attic}}]}", routed},
		"tcp routes":                       {"VirtualService", "{hosts: [a.example, own.example], tcp: [{" + route + "}]}", streamed},
		"tcp routes with a pattern":        {"VirtualService", "{hosts: ['*.example'], tcp: [{" + route + "}]}", streamed},
		"tcp routes of a gateway":          {"VirtualService", "{hosts: [a.example], gateways: [edge/gw], tcp: [{" + route + "}]}", forwarded},
		"tls routes of a gateway":          {"VirtualService", "{hosts: [a.example, own.example], gateways: [edge/gw], tls: [{match: [{sniHosts: [a.example]}], " + route + "}]}", passed},
		"a DestinationRule":                {"DestinationRule", "{host: a.example, subsets: [{name: v1, labels: {v: x}}]}", ruled},
		"a DestinationRule with a pattern": {"DestinationRule", "{host: '*.example', subsets: [{name: v1, labels: {v: x}}]}", ruled},
		"a Gateway":                        {"Gateway", "{selector: {app: edge}, servers: [{port: {number: 90, name: p, protocol: HTTP}, hosts: [a.example]}]}", served},
		"a ServiceEntry": {"ServiceEntry", "{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.2.0.1}]}", func(w *xdstest.World) bool {
			return attic(w).Service("a.example").Namespace != "shop"
		}},
	}
}

// TestWhoSpeaksForAHost: if the mesh asks for consent, an object has effect for a host of
// another namespace while a HostGrant there consents, or if its writer had the right to the
// host. For other hosts it always has effect.
func TestWhoSpeaksForAHost(t *testing.T) {
	t.Parallel()
	for name, s := range speakers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t,
				xdstest.HTTPService("shop/a", "a.example", "10.1.0.1"), xdstest.HTTPService("attic/own", "own.example", "10.1.0.2"),
				xdstest.Object("Gateway", "edge/gw", "{selector: {app: edge}, servers: [{port: {number: 81, name: t, protocol: TCP}, hosts: ['*']}, {port: {number: 82, name: s, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ['*']}]}"),
				xdstest.Object("VirtualService", "attic/leaf", "{http: [{route: [{destination: {host: away.example}}]}]}"),
				xdstest.Object(s.kind, "attic/speaker", s.spec))
			expect := func(what string, want bool) {
				t.Helper()
				if got := s.effect(w); got != want {
					t.Errorf("%s: effect %v, want %v", what, got, want)
				}
			}
			grant := func(from string) string {
				return xdstest.Object("HostGrant", "shop/g", fmt.Sprintf("{from: [{kind: %s, namespace: %s}], to: [{hosts: [a.example]}]}", s.kind, from))
			}
			expect("nobody asks", true)
			w.SetHostConsent(true)
			expect("asked for", false)
			w.Apply(grant("elsewhere"))
			expect("consent to another namespace", false)
			w.Apply(grant("attic"))
			expect("consent", true)
			w.Delete("hostgrant/shop/g")
			expect("consent withdrawn", false)
			speak := func(namespace, right string) {
				document := xdstest.Object(s.kind, namespace+"/speaker", s.spec)
				w.Apply(strings.Replace(document, "namespace: "+namespace+"}", fmt.Sprintf("namespace: %s, annotations: {%s: '%s'}}", namespace, claim.RightsAnnotation, right), 1))
			}
			claimed := "a.example"
			if strings.Contains(name, "pattern") {
				claimed = "*.example"
			}
			speak("attic", "blog/"+claimed)
			expect("the right to a host of another owner", false)
			speak("attic", "shop/"+claimed)
			expect("the right", true)
			speak("attic", "shop/other.example")
			expect("the right to another host", false)
			w.Delete("serviceentry/shop/a")
			if s.kind != "ServiceEntry" && s.kind != "DestinationRule" {
				expect("a host that nobody owns", true)
			}
			w.Apply(xdstest.HTTPService("shop/a", "a.example", "10.1.0.1"))
			expect("an owner again", s.kind == "ServiceEntry") // the other is the older one
			w.Delete(strings.ToLower(s.kind) + "/attic/speaker")
			speak("istio-system", "")
			expect("the mesh's own", s.kind != "ServiceEntry")
		})
	}
}

// TestConsentChangesRows: where consent changes an answer, its row is among those that changed.
func TestConsentChangesRows(t *testing.T) {
	t.Parallel()
	for name, s := range speakers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t,
				xdstest.HTTPService("shop/a", "a.example", "10.1.0.1"), xdstest.Object(s.kind, "attic/speaker", s.spec),
				xdstest.Object("VirtualService", "attic/leaf", "{http: [{route: [{destination: {host: away.example}}]}]}"))
			w.SetHostConsent(true)
			grant := xdstest.Object("HostGrant", "shop/g", fmt.Sprintf("{from: [{kind: %s, namespace: attic}], to: [{hosts: ['*']}]}", s.kind))
			changed := 0
			for _, step := range []func(){func() { w.Apply(grant) }, func() { w.Delete("hostgrant/shop/g") }} {
				from, sidecar, gateway := w.Context(), attic(w).Recording(), router(w).Recording()
				sidecar.VirtualServiceAt(sidecar.Egress()[0], "a.example")
				sidecar.Streams(sidecar.Egress()[0], "a.example")
				sidecar.Rule(sidecar.Service("a.example"))
				gateway.VirtualServices("edge/gw", "a.example")
				step()
				rows := mesh.Diff(from, w.Context()).Keys()
				for before, after := range map[*mesh.View]*mesh.View{sidecar: attic(w), gateway: router(w)} {
					for _, d := range before.Dependencies() {
						if after.Answer(d.Query) == d.Answer {
							continue
						}
						if changed++; !slices.Contains(rows, d.Query.Row) {
							t.Errorf("%v has another answer, and is not among the changed rows", d.Query)
						}
					}
				}
			}
			if s.kind != "Gateway" && !strings.HasSuffix(name, "routes of a gateway") && changed < 2 { // those are servers, of no row
				t.Errorf("%d answers changed", changed)
			}
		})
	}
}

// TestHostsBesideARefusedOne: an object that has no effect for one host has it for others.
func TestHostsBesideARefusedOne(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t,
		xdstest.HTTPService("shop/a", "a.example", "10.1.0.1"), xdstest.HTTPService("attic/own", "own.example", "10.1.0.2"),
		xdstest.Object("VirtualService", "attic/exact", "{hosts: [a.example, own.example], http: [{route: [{destination: {host: own.example}}]}]}"),
		xdstest.Object("DestinationRule", "attic/pattern", "{host: '*.example', subsets: [{name: v1, labels: {v: x}}]}"),
		xdstest.Object("Gateway", "attic/gw", "{selector: {app: edge}, servers: [{port: {number: 80, name: p, protocol: HTTP}, hosts: [a.example, own.example, '*.example', shop/a.example]}]}"))
	w.SetHostConsent(true)
	v := attic(w)
	if vs := v.VirtualServiceAt(v.Egress()[0], "own.example"); vs == nil {
		t.Error("the VirtualService has no effect for its own host")
	}
	if r := v.Rule(v.Service("own.example")); r == nil {
		t.Error("the DestinationRule has no effect for a host of its own namespace")
	}
	var hosts []string
	for _, h := range w.Context().Gateway(config.Key{Kind: schema.Gateway, Namespace: "attic", Name: "gw"}.Path()).Servers[0].Hosts {
		hosts = append(hosts, fmt.Sprintf("%d %s/%s", h.Index, h.Namespace, h.Name))
	}
	if got := strings.Join(hosts, " "); got != "1 */own.example 2 */*.example 3 shop/a.example" {
		t.Errorf("the server of the Gateway has the hosts %s", got)
	}
}
