package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestKeysOfRules: a rule whose keys are missing has a verdict, with the reason.
func TestKeysOfRules(t *testing.T) {
	t.Parallel()
	set := func(url, spec string) string {
		source := keyset.Source{URL: url}
		return "{apiVersion: portolan.io/v1, kind: KeySet, metadata: {name: " + source.Name() + ", namespace: istio-system}, spec: {url: '" + url + "', " + spec + "}}"
	}
	const keys = `keys: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}', since: "2026-11-28T08:00:00Z"`
	w := xdstest.NewWorld(t, xdstest.Object("RequestAuthentication", "shop/tokens", `{jwtRules: [
		{issuer: a, jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'}, {issuer: "https://new.example"},
		{issuer: a, jwksUri: "https://good.example"}, {issuer: a, jwksUri: "https://away.example"}, {issuer: a, jwksUri: "https://never.example"}]}`))
	var x *index.Index
	for _, step := range []struct{ add, want string }{
		{"", "PTL0392 spec.jwtRules[1].issuer|PTL0392 spec.jwtRules[2].jwksUri|PTL0392 spec.jwtRules[3].jwksUri|PTL0392 spec.jwtRules[4].jwksUri"},
		{set("https://good.example", keys), "PTL0392 spec.jwtRules[1].issuer|PTL0392 spec.jwtRules[3].jwksUri|PTL0392 spec.jwtRules[4].jwksUri"},
		{set("https://away.example", keys+", error: it is away") + "\n---\n" + set("https://never.example", "error: it is lost"),
			"PTL0391 spec.jwtRules[3].jwksUri the leading server cannot fetch the keys again, and proxies go on with those of 2026-11-28T08:00:00Z: it is away|" +
				"PTL0391 spec.jwtRules[4].jwksUri the leading server cannot fetch the keys, and never could, so proxies refuse the tokens: it is lost|PTL0392 spec.jwtRules[1].issuer"},
	} {
		if step.add != "" {
			w.Apply(step.add)
		}
		x = x.Next(verdict.Facts{Mesh: w.Context()})
		var told []string
		for l := range x.Lists() {
			for _, v := range l.Verdicts {
				text := string(v.Code) + " " + v.Field
				if v.Code == verdict.KeysMissing {
					text += " " + v.Message
				}
				told = append(told, text)
			}
		}
		if got := strings.Join(told, "|"); got != step.want {
			t.Errorf("told: %s\nwant: %s", got, step.want)
		}
	}
}

// TestWhomTokenRulesAreFor: a RequestAuthentication that is for nobody has a verdict, and one that
// is for a gRPC server.
func TestWhomTokenRulesAreFor(t *testing.T) {
	t.Parallel()
	const rules = `jwtRules: [{issuer: a, jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'}]`
	sidecar := certified("sidecar~10.0.0.1~web.default~default.svc.cluster.local", "10.0.0.1")
	server := &status.Proxy{Node: "proxyless~10.0.0.1~web.default~d", Type: "grpc", Namespace: "default", Addresses: []string{"10.0.0.1"}, Replica: "r"}
	for _, c := range []struct {
		spec  string
		proxy *status.Proxy
		want  []string
	}{
		{"{" + rules + "}", sidecar, nil},
		{"{selector: {matchLabels: {app: web}}, " + rules + "}", sidecar, nil},
		{"{selector: {matchLabels: {app: db}}, " + rules + "}", sidecar, []string{"p PTL0371 spec.selector"}},
		{"{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}], " + rules + "}", sidecar, []string{"p PTL0371 spec.targetRefs"}},
		{"{" + rules + "}", server, []string{"p PTL0393 spec.jwtRules"}},
	} {
		w := xdstest.NewWorld(t, xdstest.Object("RequestAuthentication", "p", c.spec),
			xdstest.Object("ServiceEntry", "web", "{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: p, protocol: GRPC}], endpoints: [{address: 10.0.0.1, serviceAccount: web, labels: {app: web}}]}"))
		if got := said((*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(c.proxy)})); !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.spec, c.proxy.Type, got, c.want)
		}
	}
}
