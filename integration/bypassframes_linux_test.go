package integration

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
)

// onlyOpen allows one path and one method.
const onlyOpen = `{rules: [{to: [{operation: {methods: [GET], paths: [/open]}}]}]}`

// methods: what is no GET of the allowed path is refused, CONNECT and upgrades too.
func methods() bypass {
	upgrade := func(path, to string, more ...string) knock {
		return rawLines(append([]string{"GET " + path + " HTTP/1.1", "host: app.shop.test", "upgrade: " + to, "sec-websocket-version: 13", "sec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA=="}, more...)...)
	}
	then := func(k knock) knock { return knock{raw: k.raw + get("/secret").raw} }
	return bypass{
		name: "methods", documents: authorization("only", onlyOpen), allowed: get("/open"), refused: get("/secret"), entrances: everywhere(),
		attempts: []attempt{
			{name: "POST", knock: rawLines("POST /open HTTP/1.1", "host: app.shop.test", "connection: close", "content-length: 0")},
			{name: "HEAD", knock: rawLines("HEAD /open HTTP/1.1", "host: app.shop.test", "connection: close"), want: "403"},
			{name: "small letters", knock: rawLines("get /open HTTP/1.1", "host: app.shop.test", "connection: close"), want: "400"},
			{name: "an unknown method", knock: rawLines("GOT /open HTTP/1.1", "host: app.shop.test", "connection: close"), want: "400"},
			{name: "a method in a header", knock: rawLines("POST /open HTTP/1.1", "host: app.shop.test", "connection: close", "content-length: 0", "x-http-method-override: GET", "x-http-method: GET", "x-method-override: GET")},
			{name: "CONNECT", knock: rawLines("CONNECT app.shop.test:80 HTTP/1.1", "host: app.shop.test:80", "connection: close")},
			{name: "OPTIONS *", knock: rawLines("OPTIONS * HTTP/1.1", "host: app.shop.test", "connection: close"), want: "404"},
			{name: "a WebSocket", knock: upgrade("/secret", "websocket", "connection: upgrade")},
			{name: "a WebSocket on the allowed path", knock: upgrade("/open", "websocket", "connection: upgrade"), want: "101", why: "it is allowed"},
			{name: "h2c", knock: then(upgrade("/secret", "h2c", "connection: upgrade, http2-settings", "http2-settings: AAMAAABkAARAAAAAAAIAAAAA")), want: "denied,denied"},
			{name: "h2c on the allowed path", knock: then(upgrade("/open", "h2c", "connection: upgrade, http2-settings", "http2-settings: AAMAAABkAARAAAAAAAIAAAAA")), want: "http,denied", why: "the request is of HTTP/1.1: Envoy does not change to HTTP/2, and judges the next one"},
			{name: "TLS within", knock: upgrade("/secret", "TLS/1.2", "connection: upgrade"), want: "403"},
			{name: "CONNECT of HTTP/2", knock: fields(":method", "CONNECT", ":authority", "app.shop.test:80")},
			{name: "an extended CONNECT", knock: h2("/open", ":protocol", "websocket"), want: "closed"},
			{name: "a WebSocket by an extended CONNECT", knock: fields(":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/secret", ":authority", "app.shop.test"), want: "closed"},
			{name: "small letters in HTTP/2", knock: fields(":method", "get", ":scheme", "http", ":path", "/open", ":authority", "app.shop.test")},
		},
	}
}

// versions: no version of HTTP gets around the policy.
func versions() bypass {
	return bypass{
		name: "versions", documents: authorization("only", onlyOpen), allowed: get("/open"), refused: get("/secret"), entrances: everywhere(),
		attempts: []attempt{
			{name: "HTTP/1.0", knock: rawLines("GET /secret HTTP/1.0", "host: app.shop.test"), want: "426"},
			{name: "HTTP/1.0 without a host", knock: rawLines("GET /secret HTTP/1.0"), want: "426"},
			{name: "HTTP/0.9", knock: knock{raw: "GET /secret\r\n\r\n"}, want: "426"},
			{name: "HTTP/1.2", knock: rawLines("GET /secret HTTP/1.2", "host: app.shop.test", "connection: close"), want: "426"},
			{name: "HTTP/2.0 in a line", knock: rawLines("GET /secret HTTP/2.0", "host: app.shop.test", "connection: close"), want: "426"},
			{name: "no HTTP", knock: knock{raw: "\x01hello, server, are you there?\n\r\n\r\n"}, want: "400"},
			{name: "HTTP/2", knock: h2("/secret")},
			{name: "HTTP/2 on the allowed path", knock: h2("/open"), want: "http", why: "it is allowed"},
			{name: "two paths", knock: h2("/secret", ":path", "/open"), want: "closed"},
			{name: "two paths in turn", knock: h2("/open", ":path", "/secret"), want: "closed"},
			{name: "two methods", knock: h2("/open", ":method", "POST"), want: "closed"},
			{name: "a pseudo-header behind the others", knock: h2("/open", "x-a", "b", ":path", "/secret"), want: "closed"},
			{name: "an unknown pseudo-header", knock: h2("/open", ":secret", "x"), want: "closed"},
			{name: "no path", knock: fields(":method", "GET", ":scheme", "http", ":authority", "app.shop.test"), want: "closed"},
			{name: "an empty path", knock: h2(""), want: "closed"},
			{name: "a path without a slash", knock: h2("open"), want: "closed"},
			{name: "an absolute path", knock: h2("http://app.shop.test/secret"), want: "closed"},
			{name: "bytes that are no ASCII", knock: h2("/secret\xc3\xa4")},
			{name: "bytes that are no ASCII in HTTP/1.1", knock: get("/secret\xc3\xa4"), want: "400"},
			{name: "a path with a space", knock: h2("/open /secret"), want: "closed"},
			{name: "a line within a path", knock: h2("/open HTTP/1.1\r\nhost: x\r\n\r\nGET /secret"), want: "closed"},
			{name: "a line within a header", knock: h2("/open", "x-a", "b\r\n\r\nGET /secret HTTP/1.1"), want: "closed"},
			{name: "a header of the connection", knock: h2("/open", "connection", "close"), want: "closed"},
			{name: "transfer-encoding in HTTP/2", knock: h2("/open", "transfer-encoding", "chunked"), want: "closed"},
			{name: "an odd scheme", knock: fields(":method", "GET", ":scheme", "gopher", ":path", "/secret", ":authority", "app.shop.test")},
		},
	}
}

// framing: a second request within the first is judged, or never read.
func framing() bypass {
	second := get("/secret").raw
	post := func(headers []string, body string) knock {
		return knock{raw: "POST /open HTTP/1.1\r\nhost: app.shop.test\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n" + body}
	}
	const chunked = "transfer-encoding: chunked"
	return bypass{
		name: "framing", documents: authorization("only", strings.Replace(onlyOpen, "[GET]", "[GET, POST]", 1)), allowed: get("/open"), refused: get("/secret"), entrances: everywhere(),
		attempts: []attempt{
			{name: "one after the other", knock: knock{raw: strings.Replace(get("/open").raw, "connection: close\r\n", "", 1) + second}, want: "http,denied", why: "each is judged"},
			{name: "a length and chunks", knock: post([]string{"content-length: 5", chunked}, "0\r\n\r\n"+second), want: "400"},
			{name: "chunks and a length", knock: post([]string{chunked, "content-length: 500"}, "0\r\n\r\n"+second), want: "400"},
			{name: "two lengths", knock: post([]string{"content-length: 0", "content-length: 200"}, second), want: "400"},
			{name: "a list of lengths", knock: post([]string{"content-length: 0, 200"}, second), want: "400"},
			{name: "a negative length", knock: post([]string{"content-length: -1"}, second), want: "400"},
			{name: "a length with a sign", knock: post([]string{"content-length: +0"}, second), want: "400"},
			{name: "an odd coding", knock: post([]string{"transfer-encoding: xchunked"}, "0\r\n\r\n"+second), want: "501"},
			{name: "a coding before chunks", knock: post([]string{"transfer-encoding: gzip, chunked"}, "0\r\n\r\n"+second), want: "501"},
			{name: "chunks twice", knock: post([]string{chunked, "transfer-encoding: identity"}, "0\r\n\r\n"+second), want: "501"},
			{name: "a coding with a space before the colon", knock: post([]string{"transfer-encoding : chunked", "content-length: 5"}, "0\r\n\r\n"+second), want: "400"},
			{name: "a coding after a vertical tab", knock: post([]string{"transfer-encoding: \x0bchunked"}, "0\r\n\r\n"+second), want: "400"},
			{name: "a body of chunks, and a second request", knock: post([]string{chunked}, "3\r\nabc\r\n0\r\n\r\n"+second), want: "http,denied", why: "each is judged"},
			{name: "an extension of a chunk", knock: post([]string{chunked}, "3;x=\"\r\n\r\nabc\r\n0\r\n\r\n"+second), want: "http,denied", why: "each is judged"},
			{name: "a size that overflows", knock: post([]string{chunked}, "10000000000000003\r\nabc\r\n0\r\n\r\n"+second), want: "400"},
			{name: "a size in another notation", knock: post([]string{chunked}, "0x3\r\nabc\r\n0\r\n\r\n"+second), want: "400"},
			{name: "bare line feeds", knock: knock{raw: "GET /open HTTP/1.1\nhost: app.shop.test\n\n" + second}, want: "http,denied", why: "each is judged"},
			{name: "a request within a body", knock: post([]string{fmt.Sprintf("content-length: %d", len(second)), "connection: close"}, second), want: "http", why: "the second is the body of the first, and reaches the program as such"},
		},
	}
}

// rsaIssuer signs tokens with an RSA key.
type rsaIssuer struct {
	key *rsa.PrivateKey
	set string
}

func newRSAIssuer(t *testing.T) rsaIssuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "first", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return rsaIssuer{key, string(set)}
}

// confused returns tokens that are signed with the public key as a shared secret.
func (i rsaIssuer) confused(t *testing.T, claims map[string]any) map[string]string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(i.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"HS256 by the PEM of the RSA key":       jwkstest.SignWith(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "first", claims),
		"HS256 by the DER of the RSA key":       jwkstest.SignWith(t, jose.HS256, der, "first", claims),
		"HS256 by PKCS1 of the RSA key, no kid": jwkstest.SignWith(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&i.key.PublicKey)}), "", claims),
		"HS256 by the modulus":                  jwkstest.SignWith(t, jose.HS256, i.key.N.Bytes(), "first", claims),
		"HS256 by the set":                      jwkstest.SignWith(t, jose.HS256, []byte(i.set), "first", claims),
	}
}

// tokensInRequests: only a good token for the program lets in, wherever it is.
func tokensInRequests(t *testing.T) bypass {
	issuer := newRSAIssuer(t)
	sign := func(other map[string]any) string {
		return jwkstest.SignWith(t, jose.RS256, issuer.key, "first", claimsOf("https://issuer.test", other))
	}
	with := func(token string) knock { return get("/secret", "authorization: Bearer "+token) }
	good, now := sign(nil), time.Now()
	head, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	stranger := newRSAIssuer(t)
	bad := jwkstest.SignWith(t, jose.RS256, stranger.key, "first", claimsOf("https://issuer.test", nil))
	attempts := []attempt{
		{name: "no token", knock: get("/secret"), want: "denied"},
		{name: "another scheme", knock: get("/secret", "authorization: Basic "+good), want: "denied"},
		{name: "a token elsewhere", knock: get("/secret", "x-token: "+good), want: "denied"},
		{name: "a token in a cookie", knock: get("/secret", "cookie: access_token="+good), want: "denied"},
		{name: "another key", knock: with(bad)},
		{name: "alg none", knock: with(encode(`{"alg":"none"}`) + "." + payload + ".")},
		{name: "alg none, signed", knock: with(encode(`{"alg":"none","kid":"first"}`) + "." + payload + "." + signature)},
		{name: "alg NONE, signed", knock: with(encode(`{"alg":"NONE"}`) + "." + payload + "." + signature)},
		{name: "no alg", knock: with(encode(`{"kid":"first"}`) + "." + payload + "." + signature)},
		{name: "no signature", knock: with(head + "." + payload + ".")},
		{name: "two parts", knock: with(head + "." + payload)},
		{name: "wrong kid", knock: with(jwkstest.SignWith(t, jose.RS256, issuer.key, "second", claimsOf("https://issuer.test", nil)))},
		{name: "a kid that is a path", knock: with(jwkstest.SignWith(t, jose.RS256, stranger.key, "../../dev/null", claimsOf("https://issuer.test", nil)))},
		{name: "a key within the token", knock: with(encode(fmt.Sprintf(`{"alg":"RS256","kid":"first","jwk":%s}`, strings.TrimSuffix(strings.TrimPrefix(stranger.set, `{"keys":[`), "]}"))) + "." + strings.SplitN(bad, ".", 2)[1])},
		{name: "expired", knock: with(sign(map[string]any{"exp": now.Add(-2 * time.Minute).Unix()}))},
		{name: "not yet valid", knock: with(sign(map[string]any{"nbf": now.Add(2 * time.Minute).Unix()}))},
		{name: "wrong issuer", knock: with(sign(map[string]any{"iss": "https://evil.test"}))},
		{name: "no issuer", knock: with(sign(map[string]any{"iss": nil}))},
		{name: "wrong audience", knock: with(sign(map[string]any{"aud": "bank"})), want: "403"},
		{name: "no audience", knock: with(sign(map[string]any{"aud": nil})), want: "403"},
		{name: "a good and a bad one", knock: get("/secret?access_token="+bad, "authorization: Bearer "+good)},
		{name: "a bad and a good one", knock: get("/secret?access_token="+good, "authorization: Bearer "+bad)},
		{name: "two headers, the first bad", knock: get("/secret", "authorization: Bearer "+bad, "authorization: Bearer "+good)},
		{name: "another group", knock: with(sign(map[string]any{"groups": []string{"dev"}})), want: "denied"},
		{name: "a huge one", knock: with(sign(map[string]any{"pad": strings.Repeat("x", 100_000)})), want: "431"},
		{name: "metadata in a header", knock: get("/secret", "x-jwt-payload: "+payload, "x-envoy-jwt: "+payload), want: "denied"},
		{name: "a token in a parameter", knock: get("/secret?access_token=" + good), want: "http", why: "it is one of the places where Envoy looks without fromHeaders and fromParams"},
	}
	for name, token := range issuer.confused(t, claimsOf("https://issuer.test", nil)) {
		attempts = append(attempts, attempt{name: name, knock: with(token)})
	}
	return bypass{
		name: "tokens",
		documents: authentication("tokens", fmt.Sprintf(`{jwtRules: [{issuer: "https://issuer.test", audiences: [shop], jwks: %q, forwardOriginalToken: true}]}`, issuer.set)) + "---\n" +
			authorization("tokens", `{rules: [{from: [{source: {requestPrincipals: ["https://issuer.test/ann"]}}], when: [{key: "request.auth.claims[groups]", notValues: [dev]}]}]}`),
		allowed: with(good), refused: with("nonsense"), refusal: "401", entrances: everywhere(), attempts: attempts,
	}
}
