package verdict_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestObjectsOfAliases: what is said for an alias has no effect, and the verdict names the service. It follows
// the service.
func TestObjectsOfAliases(t *testing.T) {
	t.Parallel()
	const h = "a.shop.svc.cluster.local"
	w := xdstest.NewWorld(t,
		xdstest.Object("VirtualService", "shop/own", "{hosts: ["+h+"], http: [{directResponse: {status: 418}}]}"),
		xdstest.Object("VirtualService", "shop/to", "{hosts: [other.example.com], http: [{route: [{destination: {host: "+h+", port: {number: 80}}}]}]}"),
		xdstest.Object("DestinationRule", "shop/rule", "{host: "+h+", trafficPolicy: {loadBalancer: {simple: RANDOM}}}"),
		xdstest.HTTPService("shop/other", "other.example.com", "10.7.0.5"))
	offer := func(of host.Name) {
		w.Offer(discovery.Row{
			Hostname: h, Namespace: "shop",
			Services: []*discovery.Service{{
				Hostname: h, Address: discovery.UnspecifiedIP, Resolution: discovery.DNSLB, MeshExternal: true,
				Ports:      []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
				Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Name: "a", Namespace: "shop", ExternalName: of},
			}},
			Endpoints: []*discovery.Endpoint{{Address: string(of), Port: 80, ServicePortName: "http", Weight: 1}},
		})
	}
	var x *index.Index
	expect := func(what string, want ...string) {
		t.Helper()
		facts := verdict.Facts{Mesh: w.Context()}
		x = x.Next(facts)
		for which, one := range map[string]*index.Index{"followed": x, "fresh": (*index.Index)(nil).Next(facts)} {
			var got []string
			for _, key := range []config.Key{
				{Kind: schema.VirtualService, Namespace: "shop", Name: "own"}, {Kind: schema.VirtualService, Namespace: "shop", Name: "to"},
				{Kind: schema.DestinationRule, Namespace: "shop", Name: "rule"},
			} {
				for _, v := range one.Of(key) {
					if slices.Contains([]verdict.Code{verdict.HostAlias, verdict.HostUnknown}, v.Code) {
						got = append(got, fmt.Sprintf("%s %s %s: %s", key.Name, v.Code, v.Field, v.Message))
					}
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", what, which, d)
			}
		}
	}
	offer("web.example.com")
	expect("a name outside")
	w.Apply(xdstest.HTTPService("shop/web", "web.example.com", "10.7.0.6"))
	expect("an alias",
		`own PTL0156 spec.hosts[0]: "a.shop.svc.cluster.local" is an alias of web.example.com: this has no effect for it`,
		`to PTL0101 spec.http[0].route[0].destination.host: "a.shop.svc.cluster.local" is an alias of web.example.com, and no service: requests that take the route are answered with 503`,
		`rule PTL0156 spec.host: "a.shop.svc.cluster.local" is an alias of web.example.com: this has no effect for it`)
	w.Delete("serviceentry/shop/web")
	expect("a name outside again")
	offer(h)
	expect("an alias of itself",
		`own PTL0156 spec.hosts[0]: "a.shop.svc.cluster.local" is an alias of itself, and so of no service: this has no effect for it`,
		`to PTL0101 spec.http[0].route[0].destination.host: "a.shop.svc.cluster.local" is an alias of a.shop.svc.cluster.local, and no service: requests that take the route are answered with 503`,
		`rule PTL0156 spec.host: "a.shop.svc.cluster.local" is an alias of itself, and so of no service: this has no effect for it`)
}
