package explain_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestExplainRefusals: an explanation names the policy that refuses a request, at the server's
// sidecar and at a gateway.
func TestExplainRefusals(t *testing.T) {
	t.Parallel()
	const keys = `jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'`
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, addresses: [10.9.0.1], ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.1, serviceAccount: web, labels: {app: web}}]}"),
		xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.test]}]}"),
		xdstest.Object("VirtualService", "shop/web", "{hosts: [web.test], gateways: [edge], http: [{route: [{destination: {host: web.test}}]}]}"),
		xdstest.Object("RequestAuthentication", "shop/first", "{selector: {matchLabels: {app: web}}, jwtRules: [{issuer: a, "+keys+"}]}"),
		xdstest.Object("RequestAuthentication", "shop/second", "{selector: {matchLabels: {app: web}}, jwtRules: [{issuer: b, "+keys+"}]}"),
		xdstest.Object("RequestAuthentication", "shop/edge", "{selector: {matchLabels: {app: edge}}, jwtRules: [{issuer: e, fromHeaders: [{name: x-token}], "+keys+"}]}"),
		xdstest.Object("AuthorizationPolicy", "shop/deny", "{selector: {matchLabels: {app: web}}, action: DENY, rules: [{to: [{operation: {methods: [PUT]}}]}, {to: [{operation: {paths: [/admin]}}]}]}"),
		xdstest.Object("AuthorizationPolicy", "shop/outside", "{targetRefs: [{group: networking.istio.io, kind: Gateway, name: edge}], action: DENY, rules: [{from: [{source: {ipBlocks: [203.0.113.0/24]}}]}]}"),
		xdstest.Object("AuthorizationPolicy", "shop/allow", "{selector: {matchLabels: {app: web}}, rules: [{to: [{operation: {methods: [GET, PUT]}}]}, {from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]}"),
	)
	client := func(ip, identity string) *discovery.Proxy {
		return xdstest.Node{IP: ip, Namespace: "shop", Certified: true, Interception: discovery.InterceptionRedirect, Identity: identity}.Proxy(t)
	}
	m := connected{w, []*discovery.Proxy{
		client("10.1.0.8", "spiffe://cluster.local/ns/shop/sa/other"), client("10.1.0.9", "spiffe://cluster.local/ns/shop/sa/client"),
		xdstest.Node{IP: "10.1.0.1", Namespace: "shop", Certified: true, Interception: discovery.InterceptionRedirect, Labels: map[string]string{"app": "web"}}.Proxy(t),
		xdstest.Node{IP: "10.1.0.7", Namespace: "shop", Type: discovery.Router, Labels: map[string]string{"app": "edge"}, Certified: true, Identity: "spiffe://cluster.local/ns/shop/sa/edge"}.Proxy(t),
	}}
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	token := func(claims string) string { return part(`{"alg":"EdDSA"}`) + "." + part(claims) + ".eA" }
	const at = "web.test:80: the sidecar at 10.1.0.1:80 refuses it: "
	const other, itself, edge = "from=10.1.0.8", "from=10.1.0.9", "from=10.1.0.7"
	for _, c := range []struct{ from, more, want string }{
		{other, "", "Forwarded 0 "},
		{other, "&method=POST", "Fails 403 " + at + "no rule of authorizationpolicy/shop/allow allows it"},
		{itself, "&method=POST", "Forwarded 0 "},
		{other, "&path=/admin", "Fails 403 " + at + "spec.rules[1] of authorizationpolicy/shop/deny denies it"},
		{other, "&path=/x/../%2561dmin", "Fails 403 " + at + "spec.rules[1] of authorizationpolicy/shop/deny denies it"},
		{other, "&path=/admin%23x", "Fails 400 the proxy refuses it with 400: the path has a fragment, a NUL, or bytes that HTTP/1.1 does not take"},
		{other, "&header=x=" + strings.Repeat("x", 70_000), "Fails 431 the proxy refuses it with 431: the headers are larger than it takes"},
		{other, "&header=authorization=Bearer+x", "Fails 401 " + at + "the token is refused with 401 (Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections), by requestauthentication/shop/first, requestauthentication/shop/second"},
		{other, "&header=" + url.QueryEscape("authorization=Bearer "+token(`{"iss":"b","exp":1}`)), "Fails 401 " + at + "the token is refused with 401 (Jwt is expired), by requestauthentication/shop/second"},
		{edge, "", "Forwarded 0 "},
		{edge, "&ip=203.0.112.9", "Forwarded 0 "},
		{edge, "&ip=203.0.113.9", "Fails 403 spec.rules[0] of authorizationpolicy/shop/outside denies it"},
		{edge, "&header=" + url.QueryEscape("x-token="+token(`{"iss":"e"}`)), "Fails 401 the token is refused with 401 (Jwt verification fails), by requestauthentication/shop/edge"},
	} {
		e, err := explained(t, m, c.from+"&to=web.test:80"+c.more)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(e.Outcome, " ", e.Status, " ", e.Reason); got != c.want {
			t.Errorf("%s%s:\n%s\nwant: %s", c.from, c.more, got, c.want)
		}
	}
}
