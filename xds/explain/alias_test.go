package explain_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// aliased has a service with an alias, an alias of itself, and an alias of a service that the Sidecar of the
// namespace bank leaves out.
func aliased(t *testing.T) connected {
	const suffix = ".shop.svc.cluster.local"
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], addresses: [10.9.0.1], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.7.0.1}]}"),
		xdstest.Object("ServiceEntry", "shop/edge", "{hosts: [edge.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.7.0.2}]}"),
		xdstest.Object("VirtualService", "shop/edge", `{hosts: [edge.test], http: [
		  {match: [{uri: {prefix: /front}}], route: [{destination: {host: front`+suffix+`, port: {number: 80}}}]},
		  {route: [{destination: {host: loop`+suffix+`, port: {number: 80}}}]}]}`),
		xdstest.Object("Sidecar", "bank/default", "{egress: [{hosts: [shop/front"+suffix+"]}]}"),
	)
	for name, of := range map[string]host.Name{"front": "web.test", "loop": "loop" + suffix} {
		w.Offer(discovery.Row{Hostname: host.Name(name + suffix), Namespace: "shop", Services: []*discovery.Service{{
			Hostname: host.Name(name + suffix), Address: discovery.UnspecifiedIP, Resolution: discovery.DNSLB, MeshExternal: true,
			Attributes: discovery.Attributes{Provider: discovery.Kubernetes, Name: name, Namespace: "shop", ExternalName: of},
		}}})
	}
	return connected{w, []*discovery.Proxy{
		xdstest.Node{IP: "10.1.0.8", Namespace: "shop", Interception: discovery.InterceptionRedirect}.Proxy(t),
		xdstest.Node{IP: "10.1.0.7", Namespace: "bank", Interception: discovery.InterceptionRedirect}.Proxy(t),
		xdstest.Node{IP: "10.1.0.6", Namespace: "shop", Type: discovery.Proxyless}.Proxy(t),
		xdstest.Node{IP: "10.1.0.5", Namespace: "shop"}.Proxy(t),
	}}
}

// TestExplainAliases: a client calls a service by its alias, and where no service is reached the explanation
// says that the host is an alias, and of what.
func TestExplainAliases(t *testing.T) {
	t.Parallel()
	const (
		front, loop = "front.shop.svc.cluster.local", "loop.shop.svc.cluster.local"
		itself      = loop + " is an alias of itself: mend externalName of its Service"
		left        = front + " is an alias of web.test, which the Sidecar of the proxy leaves out"
	)

	open, closed := aliased(t), aliased(t)
	closed.SetMesh("outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
	for parameters, want := range map[string]struct{ open, closed string }{
		"from=10.1.0.8&to=" + front + ":80": {"Forwarded", "Forwarded"},
		"from=10.1.0.8&to=front:80":         {"Forwarded", "Forwarded"},
		"from=10.1.0.8&to=edge.test:80&path=/front": {
			"503 | " + front + ":80: " + front + " is an alias of web.test, and no route leads to an alias: name web.test in the route", "",
		},
		"from=10.1.0.8&to=edge.test:80":     {"503 | " + loop + ":80: " + itself, ""},
		"from=10.1.0.8&to=" + loop + ":80":  {"Passed | " + itself + "; no service is meant", "Fails | " + itself + "; "},
		"from=10.1.0.8&to=loop.shop:80":     {"Passed | " + itself + "; no service is meant", "Fails | " + itself + "; "},
		"from=10.1.0.7&to=" + front + ":80": {"Passed | " + left + "; no service is meant", "Fails | " + left + "; "},
		"from=10.1.0.5&to=loop.shop:80":     {"Fails | " + itself + "; ", ""},
		"from=10.1.0.5&to=" + loop + ":81":  {"Fails | " + itself + "; ", ""},
		"from=10.1.0.5&to=" + front + ":81": {"Fails | the proxy does not listen on port 81: service web.test has no port 81", ""},
		"from=10.1.0.6&to=" + front + ":80": {"Fails | " + front + " is an alias of web.test, and gRPC clients dial no alias: dial web.test", ""},
		"from=10.1.0.6&to=" + loop + ":80":  {"Fails | " + itself + "; ", ""},
		"from=10.1.0.8&to=unknown.test:80":  {"Passed | no service is meant", ""},
	} {
		for m, says := range map[*connected]string{&open: want.open, &closed: want.closed} {
			e, err := explained(t, *m, parameters)
			if err != nil {
				t.Errorf("%s: %v", parameters, err)
				continue
			}
			got := line(e)
			for part := range strings.SplitSeq(says, " | ") {
				if !strings.Contains(" | "+got, " | "+part) {
					t.Errorf("%s:\n%s\nwant %s", parameters, got, says)
				}
			}
		}
	}
}

// TestResolveAliases: an alias has the addresses of its service.
func TestResolveAliases(t *testing.T) {
	t.Parallel()
	m := aliased(t)
	for parameters, want := range map[string]string{
		"host=front&namespace=shop":      "front.shop.svc.cluster.local web.test own",
		"host=web.test&namespace=shop":   "web.test  own",
		"host=loop&namespace=shop":       "   loop.shop.svc.cluster.local is an alias of itself: mend externalName of its Service",
		"host=front.shop&namespace=bank": "   front.shop.svc.cluster.local is an alias of web.test, which the Sidecar of the proxy leaves out",
	} {
		r, err := resolved(m, parameters)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join([]string{r.Host, r.AliasOf, string(r.From), r.Reason}, " "); strings.TrimRight(got, " ") != strings.TrimRight(want, " ") {
			t.Errorf("%s: %q, want %q", parameters, got, want)
		}
	}
}
