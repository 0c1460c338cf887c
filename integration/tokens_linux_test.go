package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// authentication is a RequestAuthentication of the namespace shop.
func authentication(name, spec string) string {
	return "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: " + name + ", namespace: shop}\nspec: " + spec + "\n"
}

// claimsOf returns the claims of a valid token, with others in their place, and without those that are nil there.
func claimsOf(issuer string, other map[string]any) map[string]any {
	now := time.Now()
	out := map[string]any{"iss": issuer, "sub": "ann", "aud": "shop", "exp": now.Add(time.Hour).Unix(), "user": map[string]any{"name": "Ann"}, "scope": "read write"}
	maps.Copy(out, other)
	maps.DeleteFunc(out, func(_ string, value any) bool { return value == nil })
	return out
}

// tokenCase is a request with tokens, and the answer to it.
type tokenCase struct {
	name, method, path string
	header             map[string]string
	want               string // the upstream, or a status
}

// tokenScene is a workload with a sidecar, and a program without one.
type tokenScene struct {
	*peerMesh
	in *envoy
}

func newTokenScene(t *testing.T, v protocol.Variant) *tokenScene {
	m := newPeerMesh(t, serverOptions{})
	s := &tokenScene{m, m.sidecarOfApp(v, identified(t, m.of, shopAccounts+"app"))}
	s.in.awaitWarm()
	return s
}

func (s *tokenScene) ask(c tokenCase) (reply, error) {
	if c.method == "" {
		c.method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(s.t.Context(), c.method, "http://10.0.0.1:8080/"+c.path, nil)
	if err != nil {
		return reply{}, err
	}
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	return answer(s.client.http(s.t), r)
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// awaitToken waits until a bearer gets an answer.
func (s *tokenScene) awaitToken(token, want string) {
	s.t.Helper()
	eventually(s.t, "a token gets "+want, func() error {
		if got, err := s.ask(tokenCase{header: bearer(token)}); err != nil || got.String() != want {
			return fmt.Errorf("%s, %w", got, err)
		}
		return nil
	})
}

// forged returns tokens that must be refused, though they say what a good one says.
func forged(t *testing.T, issuer *jwkstest.Issuer, claims map[string]any) map[string]string {
	t.Helper()
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, id := issuer.Public()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	good := issuer.Sign(t, claims)
	head, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	admin := maps.Clone(claims)
	admin["sub"] = "root"
	return map[string]string{
		"another key":                     jwkstest.SignWith(t, jose.ES256, mine, id, claims),
		"another key, no id":              jwkstest.SignWith(t, jose.ES256, mine, "", claims),
		"wrong kid":                       jwkstest.SignWith(t, jose.ES256, mine, "other", claims),
		"HS256 by the public key":         jwkstest.SignWith(t, jose.HS256, text, id, claims),
		"HS256 by the public key, no kid": jwkstest.SignWith(t, jose.HS256, text, "", claims),
		"HS256 by its DER":                jwkstest.SignWith(t, jose.HS256, der, id, claims),
		"alg none":                        part(map[string]any{"alg": "none", "kid": id}) + "." + payload + ".",
		"alg none, signed":                part(map[string]any{"alg": "none", "kid": id}) + "." + payload + "." + signature,
		"alg None":                        part(map[string]any{"alg": "None"}) + "." + payload + ".",
		"no signature":                    head + "." + payload + ".",
		"another payload":                 head + "." + part(admin) + "." + signature,
		"nonsense":                        "nonsense",
		"two parts":                       head + "." + payload,
	}
}

// TestEnvoyTokens: a sidecar lets requests without a token and with valid ones through, and
// refuses all others, wherever a token is. What it says reaches the program.
func TestEnvoyTokens(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := newTokenScene(t, v)
		first, second := jwkstest.Plain(t), jwkstest.Plain(t)
		before := s.in.listenersModified()
		s.apply(authentication("first", fmt.Sprintf(`{jwtRules: [{issuer: %q, audiences: [shop, other], jwksUri: %q, forwardOriginalToken: true,
			fromHeaders: [{name: authorization, prefix: "Bearer "}, {name: x-token}], fromParams: [token], fromCookies: [session],
			outputPayloadToHeader: x-payload, outputClaimToHeaders: [{header: x-user, claim: user.name}, {header: x-sub, claim: sub}]}]}`, first.URL, first.URL+"/keys")),
			authentication("second", fmt.Sprintf(`{selector: {matchLabels: {app: app}}, jwtRules: [{issuer: %q}]}`, second.URL)),
			authentication("elsewhere", fmt.Sprintf(`{selector: {matchLabels: {app: other}}, jwtRules: [{issuer: elsewhere, jwks: %q}]}`, second.Set())))
		good, other := first.Sign(t, claimsOf(first.URL, nil)), second.Sign(t, claimsOf(second.URL, nil))
		s.awaitToken(good, "http")
		s.awaitToken(other, "http")

		bad := forged(t, first, claimsOf(first.URL, nil))["another key"]
		now := time.Now()
		signed := func(other map[string]any) map[string]string { return bearer(first.Sign(t, claimsOf(first.URL, other))) }
		cases := []tokenCase{
			{name: "no token", want: "http"},
			{name: "another scheme", header: map[string]string{"Authorization": "Basic YTpi"}, want: "http"},
			{name: "in a header", header: map[string]string{"X-Token": good}, want: "http"},
			{name: "in a parameter", path: "?a=b&token=" + good, want: "http"},
			{name: "in a cookie", header: map[string]string{"Cookie": "a=b; session=" + good}, want: "http"},
			{name: "a bad one in a header", header: map[string]string{"X-Token": bad}, want: "401"},
			{name: "a bad one in a parameter", path: "?token=" + bad, want: "401"},
			{name: "a bad one in a cookie", header: map[string]string{"Cookie": "session=" + bad}, want: "401"},
			{name: "the other issuer's default parameter", path: "?access_token=" + other, want: "http"},
			{name: "a bad one there", path: "?access_token=" + bad, want: "401"},
			{name: "two good ones", path: "?token=" + good, header: bearer(good), want: "http"},
			{name: "a good and a bad one", path: "?token=" + bad, header: bearer(good), want: "401"},
			{name: "a bad and a good one", path: "?token=" + good, header: bearer(bad), want: "401"},
			{name: "expired", header: signed(map[string]any{"exp": now.Add(-2 * time.Minute).Unix()}), want: "401"},
			{name: "expired within the clock skew", header: signed(map[string]any{"exp": now.Add(-20 * time.Second).Unix()}), want: "http"},
			{name: "not yet valid", header: signed(map[string]any{"nbf": now.Add(2 * time.Minute).Unix()}), want: "401"},
			{name: "the other audience", header: signed(map[string]any{"aud": []string{"x", "other"}}), want: "http"},
			{name: "wrong audience", header: signed(map[string]any{"aud": "bank"}), want: "403"},
			{name: "no audience", header: signed(map[string]any{"aud": nil}), want: "403"},
			{name: "wrong issuer", header: signed(map[string]any{"iss": "https://evil.example"}), want: "401"},
			{name: "an issuer of another workload", header: bearer(second.Sign(t, claimsOf("elsewhere", nil))), want: "401"},
			{name: "of the other issuer, signed by this one", header: bearer(first.Sign(t, claimsOf(second.URL, nil))), want: "401"},
			{name: "a large one", header: signed(map[string]any{"pad": strings.Repeat("x", 20_000)}), want: "http"},
			{name: "a huge one", header: signed(map[string]any{"pad": strings.Repeat("x", 100_000)}), want: "431"},
			{name: "a preflight", method: http.MethodOptions, header: map[string]string{"Origin": "https://a.example", "Access-Control-Request-Method": "GET", "Authorization": "Bearer x"}, want: "http"},
			{name: "OPTIONS that is none", method: http.MethodOptions, header: bearer("x"), want: "401"},
		}
		for name, token := range forged(t, first, claimsOf(first.URL, nil)) {
			cases = append(cases, tokenCase{name: name, header: bearer(token), want: "401"})
		}
		for _, c := range cases {
			if got, err := s.ask(c); err != nil || got.String() != c.want {
				t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
			}
		}
		s.expectForwarded(good, other)
		if again := s.in.listenersModified(); again != before {
			t.Errorf("%d listeners were changed", again-before)
		}
		s.expectNothingRejected()
		s.in.expectNothingRejected()
	})
}

// expectForwarded: a program sees what a token says, and nothing that a client made up.
func (s *tokenScene) expectForwarded(good, other string) {
	s.t.Helper()
	get := func(header map[string]string) http.Header {
		got, err := s.ask(tokenCase{header: header})
		if err != nil || got.String() != "http" {
			s.t.Fatalf("%s, %v", got, err)
		}
		return got.echo.Header
	}
	seen := get(bearer(good))
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(seen.Get("X-Payload"), "="))
	if err != nil || !strings.Contains(string(payload), `"sub":"ann"`) || seen.Get("X-User") != "Ann" || seen.Get("X-Sub") != "ann" || seen.Get("Authorization") != "Bearer "+good {
		s.t.Errorf("the program sees %v, payload %s", seen, payload)
	}
	if seen := get(bearer(other)); seen.Get("Authorization") != "" {
		s.t.Errorf("a token that is not to be forwarded is: %v", seen)
	}
	if seen := get(map[string]string{"X-User": "root", "X-Sub": "root", "X-Payload": "e30"}); seen.Get("X-User")+seen.Get("X-Sub")+seen.Get("X-Payload") != "" {
		s.t.Errorf("a client makes up claims: %v", seen)
	}
}

// TestEnvoyTokenKeys: a rotated key is taken without a failed request, a server that starts while
// the issuer is away serves the keys of before, and an issuer that was never there is refused alone.
func TestEnvoyTokenKeys(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := newTokenScene(t, v)
		issuer := jwkstest.Plain(t)
		s.apply(authentication("tokens", fmt.Sprintf(`{jwtRules: [{issuer: %q}]}`, issuer.URL)))
		old := issuer.Sign(t, claimsOf(issuer.URL, nil))
		s.awaitToken(old, "http")

		set := issuer.Set()
		issuer.Rotate(t, "second")
		both := strings.TrimSuffix(string(set), "]}") + "," + strings.TrimPrefix(string(issuer.Set()), `{"keys":[`)
		issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(both)) })
		young := issuer.Sign(t, claimsOf(issuer.URL, nil))
		if got, err := s.ask(tokenCase{header: bearer(young)}); err != nil || got.String() != "401" {
			t.Errorf("a key that nobody has fetched: %s, %v", got, err)
		}
		end := s.keepAsking(bearer(old))
		s.restart() // whoever begins to lead fetches at once
		s.awaitToken(young, "http")
		end()

		issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "away", http.StatusServiceUnavailable) })
		s.restart()
		s.awaitIssue("requestauthentication", "tokens", "PTL0391", "503 Service Unavailable")
		issuer.Answer(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[{"kty":"EC","crv":"none"}]}`))
		})
		s.restart()
		s.awaitIssue("requestauthentication", "tokens", "PTL0391", "keys")
		s.in.process.kill()
		s.in = s.sidecarOfApp(v, identified(t, s.of, shopAccounts+"app"))
		s.in.awaitWarm()
		s.awaitToken(young, "http")
		s.awaitToken(old, "http")

		s.apply(authentication("lost", `{jwtRules: [{issuer: "http://127.0.0.1:1"}]}`))
		s.awaitIssue("requestauthentication", "lost", "PTL0391", "connection refused")
		s.awaitSynced(s.revision(), "app")
		for want, header := range map[string]map[string]string{
			"401": bearer(issuer.Sign(t, claimsOf("http://127.0.0.1:1", nil))), "http": bearer(young),
		} {
			if got, err := s.ask(tokenCase{header: header}); err != nil || got.String() != want {
				t.Errorf("an issuer that was never there: %s, %v, want %s", got, err, want)
			}
		}
		if got, err := s.ask(tokenCase{}); err != nil || got.String() != "http" {
			t.Errorf("no token: %s, %v", got, err)
		}
		s.in.expectNothingRejected()

		if out := s.must("", "get", "keysets", "-A"); !strings.Contains(out, issuer.URL) || !strings.Contains(out, "127.0.0.1:1") {
			t.Errorf("the KeySets:\n%s", out)
		}
		if out := s.try("{apiVersion: portolan.io/v1, kind: KeySet, metadata: {name: x, namespace: istio-system}, spec: {url: x}}", "apply", "-f", "-"); out.code == 0 {
			t.Error("a user writes a KeySet")
		}
		s.remove(authentication("lost", "{}"), authentication("tokens", "{}"))
		eventually(t, "no KeySet is left", func() error {
			if out := s.must("", "get", "keysets", "-A"); strings.Contains(out, issuer.URL) {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
		s.awaitToken("nonsense", "http")
	})
}

// restart stops the server and starts it again.
func (s *tokenScene) restart() {
	s.t.Helper()
	if err := s.process.terminate(s.t); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// keepAsking sends requests until end is called, which fails for each that got no answer of the
// program.
func (s *tokenScene) keepAsking(header map[string]string) (end func()) {
	var stop atomic.Bool
	var running sync.WaitGroup
	count, failed := 0, []string{}
	running.Go(func() {
		for ; !stop.Load(); count++ {
			if got, err := s.ask(tokenCase{header: header}); err != nil || got.String() != "http" {
				failed = append(failed, fmt.Sprint(got, err))
			}
		}
	})
	return func() {
		s.t.Helper()
		stop.Store(true)
		running.Wait()
		if len(failed) > 0 || count == 0 {
			s.t.Errorf("%d of %d requests failed: %v", len(failed), count, failed[:min(len(failed), 3)])
		}
	}
}

// TestEnvoyTokenReplicas: one of two servers fetches the keys, both give proxies the same bytes,
// and the one that is left goes on with them while the issuer is away.
func TestEnvoyTokenReplicas(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		etcd, issuer := startEtcd(t), jwkstest.Plain(t)
		servers, ports := [2]*server{}, [2]int{}
		documents := []string{authentication("tokens", fmt.Sprintf("{jwtRules: [{issuer: %q}]}", issuer.URL))}
		var edges [2]*envoy
		for i := range servers {
			servers[i], ports[i] = startServer(t, serverOptions{etcd: etcd}), freePort(t)
			edges[i] = servers[i].startEnvoy(envoyOptions{kind: "router", name: fmt.Sprint("edge", i), labels: fmt.Sprint("app=edge", i), variant: v})
			documents = append(documents, fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge%d, namespace: shop}
spec: {selector: {app: edge%d}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}]}
`, i, i, ports[i]))
		}
		servers[0].apply(append(documents, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web.shop.test], gateways: [edge0, edge1], http: [{directResponse: {status: 210}}]}
`)...)
		token := issuer.Sign(t, claimsOf(issuer.URL, nil))
		bad := forged(t, issuer, claimsOf(issuer.URL, nil))["another key"]
		await := func(port, want int, token string) {
			t.Helper()
			eventually(t, fmt.Sprintf("a token gets %d", want), func() error {
				if got, err := do(t.Context(), clientOf(t), request{port: port, host: "web.shop.test", header: bearer(token)}); err != nil || got.status != want {
					return fmt.Errorf("%s, %w", got, err)
				}
				return nil
			})
		}
		var held []string
		for i, s := range servers {
			await(ports[i], 401, bad)
			await(ports[i], 210, token)
			_, filters, _ := strings.Cut(s.must("", "proxy", "config", "extension", fmt.Sprint("edge", i), "-o", "yaml"), "\ntypes:")
			held = append(held, filters)
		}
		if held[0] != held[1] || !strings.Contains(held[0], "first") {
			t.Errorf("the servers differ:\n%s\n%s", held[0], held[1])
		}
		if n := issuer.Fetches.Load(); n != 1 {
			t.Errorf("the keys were fetched %d times", n)
		}
		issuer.Answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
		if err := servers[0].process.terminate(t); err != nil { // it leads, since it was first
			t.Fatal(err)
		}
		eventually(t, "the other server has tried to fetch", func() error {
			if out := servers[1].must("", "get", "requestauthentication", "tokens", "-n", "shop", "-o", "yaml"); !strings.Contains(out, "PTL0391") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
		for i := range edges {
			await(ports[i], 210, token)
			edges[i].expectNothingRejected()
		}
	})
}

// TestEnvoyClaimsInRoutes: a gateway routes by what a token says, and never by what a client says.
func TestEnvoyClaimsInRoutes(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, issuer, port := startServer(t, serverOptions{}), jwkstest.Plain(t), freePort(t)
		edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: v})
		s.apply(fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {selector: {app: edge}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  gateways: [edge]
  http:
  - {match: [{headers: {"@request.auth.claims.groups": {exact: admin}}}], directResponse: {status: 210}}
  - {match: [{headers: {"@request.auth.claims[user][name]": {prefix: An}}, withoutHeaders: {"@request.auth.claims.scope": {exact: write}}}], directResponse: {status: 211}}
  - {match: [{headers: {"@request.auth.claims.scope": {regex: "rea."}}}], directResponse: {status: 212}}
  - {match: [{headers: {"@request.auth.claims.sub": {}}}], directResponse: {status: 213}}
  - {directResponse: {status: 214}}
`, port), authentication("edge", fmt.Sprintf(`{selector: {matchLabels: {app: edge}}, jwtRules: [{issuer: %q, jwks: %q}]}`, issuer.URL, issuer.Set())))
		s.awaitSynced(s.revision(), "edge")
		for _, c := range []struct {
			want   int
			claims map[string]any // nil for no token
		}{
			{210, map[string]any{"groups": []string{"dev", "admin"}}},
			{210, map[string]any{"groups": "admin"}},
			{211, map[string]any{"groups": []string{"dev"}, "scope": "read"}},
			{211, map[string]any{"scope": nil}},
			{212, map[string]any{"scope": "write read"}},
			{213, map[string]any{"scope": "write", "user": map[string]any{"name": "Bob"}}},
			{214, nil},
		} {
			q := request{port: port, host: "web.shop.test"}
			if c.claims != nil {
				q.header = bearer(issuer.Sign(t, claimsOf(issuer.URL, c.claims)))
			}
			eventually(t, fmt.Sprint(c.claims), func() error {
				if got, err := do(t.Context(), clientOf(t), q); err != nil || got.status != c.want {
					return fmt.Errorf("%s, %w, want %d", got, err, c.want)
				}
				return nil
			})
		}
		if got := send(t, request{port: port, host: "web.shop.test", header: bearer("x")}); got.status != 401 {
			t.Errorf("a bad token at a gateway: %s", got)
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
	})
}
