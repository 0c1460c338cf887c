package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestVerdictsOfTokens: a policy about tokens has a verdict where none are verified, and one for an
// issuer whose tokens nobody takes.
func TestVerdictsOfTokens(t *testing.T) {
	t.Parallel()
	web := certified("sidecar~10.0.0.1~web.default~d", "10.0.0.1")
	web.Labels = map[string]string{"app": "web"}
	edge := &status.Proxy{Node: "router~10.0.0.9~edge.default~d", Type: "router", Namespace: "default", Addresses: []string{"10.0.0.9"}, Labels: map[string]string{"app": "edge"}, Replica: "r"}
	server := &status.Proxy{Node: "proxyless~10.0.0.2~grpc.default~d", Type: "grpc", Namespace: "default", Addresses: []string{"10.0.0.2"}, Labels: map[string]string{"app": "grpc"}, Replica: "r"}
	policy := func(spec string) string { return xdstest.Object("AuthorizationPolicy", "p", spec) }
	when := func(key, values string) string {
		return policy("{action: DENY, rules: [{when: [{key: '" + key + "', " + values + "}]}]}")
	}
	from := func(values string) string { return policy("{rules: [{from: [{source: {" + values + "}}]}]}") }
	takes := func(name, app, issuer string) string {
		return xdstest.Object("RequestAuthentication", name, "{selector: {matchLabels: {app: "+app+"}}, jwtRules: [{issuer: '"+issuer+`', jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'}]}`)
	}
	const first, second = "https://a.example", "https://b.example/x"
	all := []string{takes("web", "web", first), takes("more", "web", second), takes("edge", "edge", second)}
	for name, c := range map[string]struct {
		objects []string
		none    string // the field that is told without a RequestAuthentication for edge
		issuers []string
	}{
		"any principal":                {objects: []string{from("requestPrincipals: ['*']")}, none: "spec.rules[0].from[0].source.requestPrincipals"},
		"no principal":                 {objects: []string{from("notRequestPrincipals: ['*']")}, none: "spec.rules[0].from[0].source.notRequestPrincipals"},
		"an audience":                  {objects: []string{when("request.auth.audiences", "values: [shop]")}, none: "spec.rules[0].when[0].values"},
		"a presenter":                  {objects: []string{when("request.auth.presenter", "notValues: [shop]")}, none: "spec.rules[0].when[0].notValues"},
		"a claim":                      {objects: []string{when("request.auth.claims[role]", "values: [admin]")}, none: "spec.rules[0].when[0].values"},
		"a claim of that name, nested": {objects: []string{when("request.auth.claims[iss][x]", "values: [other]")}, none: "spec.rules[0].when[0].values"},
		"nothing about tokens":         {objects: []string{when("request.headers[x]", "values: [a]")}},
		"issuers that are taken": {objects: []string{from("requestPrincipals: ['https://a.example/ann', 'https://b.example/x/*']")},
			none: "spec.rules[0].from[0].source.requestPrincipals"},
		"values of several issuers": {objects: []string{from("requestPrincipals: ['https://o*', 'https://c.example/o*', '*/ann']")},
			none: "spec.rules[0].from[0].source.requestPrincipals"},
		"issuers that are not taken": {objects: []string{from("requestPrincipals: ['https://a.example/ann', 'https://c.example/ann', 'https://b.example/*']")},
			none: "spec.rules[0].from[0].source.requestPrincipals", issuers: []string{"spec.rules[0].from[0].source.requestPrincipals[1]", "spec.rules[0].from[0].source.requestPrincipals[2]"}},
		"an issuer in a condition": {objects: []string{when("request.auth.principal", "notValues: ['https://c.example/*']")},
			none: "spec.rules[0].when[0].notValues", issuers: []string{"spec.rules[0].when[0].notValues[0]"}},
		"an issuer by its claim": {objects: []string{when("request.auth.claims[iss]", "values: ['https://a.example', 'https://c.example', 'https*']")},
			none: "spec.rules[0].when[0].values", issuers: []string{"spec.rules[0].when[0].values[1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, append(slices.Clone(all), c.objects...)...)
			var x *index.Index
			expect := func(step string, without, some bool) {
				t.Helper()
				var want, got []string
				if without && c.none != "" {
					want = append(want, "p PTL0394 "+c.none)
				}
				if some {
					for _, field := range c.issuers {
						want = append(want, "p PTL0395 "+field)
					}
				}
				x = x.Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(web, edge, server)})
				for _, text := range said(x) {
					if strings.Contains(text, " PTL0394 ") || strings.Contains(text, " PTL0395 ") {
						got = append(got, text)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", step, got, want)
				}
			}
			expect("tokens everywhere", false, true)
			w.Apply(takes("edge", "other", second))
			expect("none at the gateway", true, true)
			w.Apply(takes("edge", "edge", second))
			expect("tokens everywhere again", false, true)
			for _, name := range []string{"web", "more", "edge"} {
				w.Delete("requestauthentication/default/" + name)
			}
			expect("none at all", true, false)
		})
	}
}
