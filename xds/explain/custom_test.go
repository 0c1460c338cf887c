package explain_test

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainCustom: an explanation says which policy has an authorizer asked, at the server's
// sidecar and at a gateway, and why what cannot be asked about is refused.
func TestExplainCustom(t *testing.T) {
	t.Parallel()
	custom := func(name, app, provider, rules string) string {
		return xdstest.Object("AuthorizationPolicy", "shop/"+name, "{selector: {matchLabels: {app: "+app+"}}, action: CUSTOM, provider: {name: "+provider+"}, rules: ["+rules+"]}")
	}
	at := func(path string) string { return "{to: [{operation: {paths: [" + path + "]}}]}" }
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, addresses: [10.9.0.1], ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.1, serviceAccount: web, labels: {app: web}}]}"),
		xdstest.Object("ServiceEntry", "shop/ask", "{hosts: [ask.test], resolution: STATIC, ports: [{number: 9000, name: grpc, protocol: GRPC}, {number: 9001, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.5}]}"),
		xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.test]}]}"),
		xdstest.Object("VirtualService", "shop/web", "{hosts: [web.test], gateways: [edge], http: [{route: [{destination: {host: web.test}}]}]}"),
		custom("web", "web", "grpc", at("/never")+", "+at("/a*")), custom("none", "edge", "none", at("/none")), custom("edge", "edge", "http", at("/edge")),
		xdstest.Object("AuthorizationPolicy", "shop/deny", "{selector: {matchLabels: {app: web}}, action: DENY, rules: [{to: [{operation: {paths: [/a/deny], ports: ['80']}}]}]}"),
	)
	w.SetMesh("extensionProviders: [{name: grpc, envoyExtAuthzGrpc: {service: ask.test, port: 9000}}, {name: http, envoyExtAuthzHttp: {service: ask.test, port: 9001}}]")
	m := connected{w, []*discovery.Proxy{
		xdstest.Node{IP: "10.1.0.8", Namespace: "shop", Certified: true, Interception: discovery.InterceptionRedirect, Identity: "spiffe://cluster.local/ns/shop/sa/client"}.Proxy(t),
		xdstest.Node{IP: "10.1.0.1", Namespace: "shop", Certified: true, Interception: discovery.InterceptionRedirect, Labels: map[string]string{"app": "web"}}.Proxy(t),
		xdstest.Node{IP: "10.1.0.7", Namespace: "shop", Type: discovery.Router, Labels: map[string]string{"app": "edge"}, Certified: true}.Proxy(t),
	}}
	const (
		client, edge = "from=10.1.0.8", "from=10.1.0.7"
		asks         = "spec.rules[1] of authorizationpolicy/shop/web asks outbound|9000||ask.test first, which may refuse it"
		unasked      = "matches it, and its provider cannot be asked"
	)
	expect := func(from, to, want string) {
		t.Helper()
		e, err := explained(t, m, from+"&to=web.test:"+to)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(e.Outcome, " ", e.Status, " ", e.Reason)
		for _, d := range e.Destinations {
			for _, in := range d.Inbound {
				got += fmt.Sprint(", ", in.Outcome, " ", in.Reason)
			}
		}
		if got != want {
			t.Errorf("%s to %s:\n%s\nwant: %s", from, to, got, want)
		}
	}
	refused := func(why string) string {
		return "Fails 403 web.test:80: the sidecar at 10.1.0.1:80 refuses it: " + why + ", Fails " + why
	}
	expect(client, "80&path=/b", "Forwarded 0 , Forwarded ")
	expect(client, "80&path=/a", "Forwarded 0 , Forwarded "+asks)
	expect(client, "80&path=/a/deny", refused("spec.rules[0] of authorizationpolicy/shop/deny denies it"))
	expect(client, "90", "Forwarded 0 , Forwarded spec.rules[0] of authorizationpolicy/shop/web asks outbound|9000||ask.test first, which may refuse it")
	expect(edge, "80&path=/b", "Forwarded 0 , Forwarded ")
	expect(edge, "80&path=/none", "Fails 403 spec.rules[0] of authorizationpolicy/shop/none "+unasked)
	expect(edge, "80&path=/edge", "Fails 403 spec.rules[0] of authorizationpolicy/shop/edge "+unasked) // two providers
	w.Delete("authorizationpolicy/shop/none")
	expect(edge, "80&path=/edge", "Forwarded 0 spec.rules[0] of authorizationpolicy/shop/edge asks outbound|9001||ask.test first, which may refuse it, Forwarded ")
	w.Delete("serviceentry/shop/ask")
	expect(client, "80&path=/a", refused("spec.rules[1] of authorizationpolicy/shop/web "+unasked))
}
