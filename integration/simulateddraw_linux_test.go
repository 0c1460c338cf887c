package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/simulate/pathtest"
)

// simulatedMesh draws meshes of an explainedMesh with policies beside it, and requests to the
// doorways of a scene.
type simulatedMesh struct {
	*explainedMesh
	issuers [2]rsaIssuer
	narrows bool // Sidecars are for the workload, too
	tokens  []string
}

const noToken = ""

func newSimulatedMesh(t *testing.T, of *explainedMesh) *simulatedMesh {
	m := &simulatedMesh{explainedMesh: of, issuers: [2]rsaIssuer{newRSAIssuer(t), newRSAIssuer(t)}, tokens: []string{noToken, noToken, "nonsense", "a.b.c"}}
	for i, own := range m.issuers {
		sign := func(by rsaIssuer, other map[string]any) {
			m.tokens = append(m.tokens, jwkstest.SignWith(t, jose.RS256, by.key, "first", claimsOf(issuerName(i), other)))
		}
		sign(own, nil)
		sign(own, map[string]any{"groups": []string{"admin", "dev"}, "sub": "ben"})
		sign(own, map[string]any{"groups": "admin", "aud": []string{"bank", "shop"}})
		sign(own, map[string]any{"aud": "bank"})
		sign(own, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})
		sign(own, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})
		sign(m.issuers[1-i], nil)
	}
	return m
}

func issuerName(i int) string { return fmt.Sprintf("https://issuer%d.test", i) }

// documents draws the objects of a mesh. They have always the same names.
func (m *simulatedMesh) documents() string {
	public := strings.Replace(m.explainedMesh.documents(), "    bind: 127.0.0.1\n", "", 1) // of a client at loopback Envoy says another address
	out := []string{public, m.rich(), m.sidecar()}
	for i := range m.issuers {
		out = append(out, authentication(fmt.Sprint("a", i), "{"+m.selector()+"jwtRules: ["+m.tokenRule(i)+"]}"))
	}
	for i := range 3 {
		out = append(out, authorization(fmt.Sprint("p", i), m.policy()))
	}
	return strings.Join(out, "\n---\n")
}

// richHost is a host whose routes have what those of an explainedMesh have not.
const richHost = "rich.explain.test"

var (
	richMatches = []string{
		"{uri: {prefix: /a}, authority: {prefix: rich}}", `{headers: {x-user: {regex: "an+a"}}}`, "{headers: {x-user: {prefix: b}}, uri: {prefix: /a}}", "{withoutHeaders: {x-user: {exact: anna}}, uri: {exact: /admin}}",
		`{queryParams: {q: {regex: "[0-9]+"}}}`, `{queryParams: {q: {prefix: "1"}}}`, "{scheme: {exact: http}, uri: {prefix: /b}}", `{method: {regex: "P.*"}}`, `{uri: {regex: "/x/.*"}}`, "{uri: {exact: /admin}}",
		"{uri: {prefix: /Admin}, ignoreUriCase: true}", `{authority: {regex: ".*:1"}}`, "{headers: {x-forwarded-for: {}}}", "{port: 9080, uri: {prefix: /x}}", "{uri: {prefix: /x/}}, {uri: {prefix: /b}}", "{scheme: {exact: https}}",
		"{sourceLabels: {app: app}, uri: {prefix: /a}}", "{sourceLabels: {app: other}}", `{authority: {exact: rich.explain.test}, method: {exact: GET}}`,
	}
	richActions = []string{
		"redirect: {authority: r.test, redirectCode: 308}", "redirect: {uri: /z, port: 81}", "redirect: {scheme: https}", "redirect: {derivePort: FROM_PROTOCOL_DEFAULT, uri: /y}", "redirect: {derivePort: FROM_REQUEST_PORT}",
		"directResponse: {status: 200, body: {string: hi}}", `directResponse: {status: 503, body: {string: ""}}`,
	}
	richChanges = []string{
		"", "", "rewrite: {uri: /r}, ", "rewrite: {uri: /}, ", `rewrite: {uriRegexRewrite: {match: "/([a-z])/(.*)", rewrite: "/\\2/\\1"}}, `, "rewrite: {authority: other.test}, ", "rewrite: {uri: /r/, authority: other.test}, ",
		`corsPolicy: {allowOrigins: [{exact: "https://a.test"}], allowMethods: [GET]}, `, `corsPolicy: {allowOrigins: [{prefix: "https://"}], unmatchedPreflights: FORWARD}, `,
		`corsPolicy: {allowOrigins: [{exact: "https://a.test"}], unmatchedPreflights: IGNORE}, `, "fault: {delay: {fixedDelay: 1ms, percentage: {value: 100}}}, ", "retries: {attempts: 0}, ", "timeout: 9s, ",
	}
)

// rich draws the routes of richHost.
func (m *simulatedMesh) rich() string {
	doc := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: rich, namespace: shop}
spec:
  hosts: [$host]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $one, name: http, protocol: HTTP}, {number: $two, name: http-2, protocol: HTTP}]
  endpoints: [{address: $address, ports: {http: 9000, http-2: 9001}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: rich, namespace: shop}
spec:
  hosts: [$host]
  gateways: [mesh, edge]
  http:
`, "$host", richHost, "$one", m.ports[0], "$two", m.ports[1], "$address", m.address)
	for range 1 + m.random.IntN(5) {
		action := m.one(richActions...)
		if !m.rarely(3) {
			action = m.one(richChanges...) + "route: [{destination: " + m.destination(m.random.IntN(2)) + "}]"
		}
		doc += fmt.Sprintf("  - {match: [%s], %s}\n", m.one(richMatches...), action)
	}
	return doc + "  - {" + m.one(richChanges...) + "route: [{destination: " + m.destination(0) + "}]}\n"
}

// sidecar draws a Sidecar, rarely for the workload: a proxy that sees less gives up clusters, for
// which a server takes up to ten seconds. So the short form has none for it.
func (m *simulatedMesh) sidecar() string {
	of := "nobody"
	if m.rarely(10) && m.narrows {
		of = "app"
	}
	return fill(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: app, namespace: shop}
spec: {workloadSelector: {labels: {app: $app}}, $rest}
`, "$app", of, "$rest", m.one(
		`egress: [{hosts: ["./one.explain.test", "./rich.explain.test"]}]`, `egress: [{hosts: ["./*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}`,
		`egress: [{hosts: ["./two.explain.test"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}`, `egress: [{port: {number: 9080, name: http, protocol: HTTP}, hosts: ["./two.explain.test"]}, {hosts: ["./*"]}]`,
		`ingress: [{port: {number: 8080, name: http, protocol: HTTP}, defaultEndpoint: "127.0.0.1:8081"}]`, `ingress: [{port: {number: 7000, name: http, protocol: HTTP}}], egress: [{hosts: ["*/*"]}]`))
}

// selector draws whom a policy is for: nobody, a proxy, or all.
func (m *simulatedMesh) selector() string {
	return m.one("", "", "selector: {matchLabels: {app: app}}, ", "selector: {matchLabels: {app: edge}}, ", "selector: {matchLabels: {app: nobody}}, ", "selector: {matchLabels: {app: nobody}}, ")
}

func (m *simulatedMesh) tokenRule(i int) string {
	return fmt.Sprintf("{issuer: %q, jwks: %q%s%s%s}", issuerName(i), m.issuers[i].set,
		m.one("", ", audiences: [shop]", ", audiences: [other]"), m.one("", ", forwardOriginalToken: true"),
		m.one("", "", ", fromHeaders: [{name: x-token}]", ", fromParams: [token]", `, fromHeaders: [{name: authorization, prefix: "Bearer "}], fromCookies: [session]`, ", outputClaimToHeaders: [{header: x-sub, claim: sub}]", ", outputPayloadToHeader: x-payload"))
}

func (m *simulatedMesh) policy() string {
	action := m.one("ALLOW", "DENY", "DENY", "AUDIT")
	var rules []string
	for range 1 + m.random.IntN(3) {
		rules = append(rules, m.rule())
	}
	if action == "ALLOW" { // most requests pass
		rules = append(rules, m.one("{}", "{to: [{operation: {methods: [GET]}}]}", `{to: [{operation: {notPaths: [/b/*, "*x"]}}]}`, m.rule()))
	}
	return fmt.Sprintf("{%saction: %s, rules: [%s]}", m.selector(), action, strings.Join(rules, ", "))
}

// rule draws a rule with a source, an operation or a condition, or several of them.
func (m *simulatedMesh) rule() string {
	var out []string
	if !m.rarely(3) {
		out = append(out, "from: [{source: {"+m.one(simulatedSources...)+"}}]")
	}
	if !m.rarely(3) || len(out) == 0 {
		out = append(out, "to: [{operation: {"+m.one(simulatedOperations...)+"}}]")
	}
	if m.rarely(3) {
		out = append(out, "when: [{"+m.one(simulatedConditions...)+"}]")
	}
	return "{" + strings.Join(out, ", ") + "}"
}

var (
	simulatedSources = []string{
		"principals: [cluster.local/ns/shop/sa/client]", "notPrincipals: [cluster.local/ns/shop/sa/client]", `principals: ["*"]`, "namespaces: [shop]", "serviceAccounts: [other]",
		`principals: ["*/sa/other"]`, "ipBlocks: [10.0.0.0/24]", "notIpBlocks: [10.0.0.2]", "remoteIpBlocks: [192.0.2.0/24]", "notRemoteIpBlocks: [192.0.2.1]", `requestPrincipals: ["*"]`, `notRequestPrincipals: ["*"]`,
		`requestPrincipals: ["https://issuer0.test/*"]`, `requestPrincipals: ["https://issuer1.test/ben", "https://issuer0.test/ann"]`, "trustDomains: [cluster.local]",
	}
	simulatedOperations = []string{
		"methods: [GET]", "methods: [POST]", "notMethods: [GET]", "paths: [/a]", "paths: [/a, /b/*]", `paths: ["*1"]`, "paths: [/admin, /admin/*]", `paths: ["/a/{*}"]`, `paths: ["/{**}/admin"]`, "notPaths: [/admin]",
		"hosts: [one.explain.test]", `hosts: ["*.explain.test"]`, "notHosts: [app.shop.test]", `ports: ["8080"]`, `ports: ["8080", "8081"], methods: [GET]`, `notPorts: ["7000"]`, "paths: [/x/*], methods: [GET]",
	}
	simulatedConditions = []string{
		`key: "request.headers[x-user]", values: [anna]`, `key: "request.headers[x-user]", values: ["b*"]`, `key: "request.headers[x-user]", notValues: [anna]`, `key: "request.auth.claims[groups]", values: [admin]`,
		`key: "request.auth.claims[user][name]", values: ["A*"]`, "key: request.auth.audiences, notValues: [bank]", "key: remote.ip, values: [192.0.2.0/24]", "key: source.ip, notValues: [10.0.0.2]",
		`key: destination.port, values: ["8080"]`, `key: connection.sni, values: ["*.test"]`, "key: source.namespace, values: [shop]", `key: "request.headers[x-sub]", values: [ann]`,
	}
)

// doorway is where a request goes, and as whom.
type doorway struct {
	proxy string // app or edge
	at    entrance
	port  int
}

// offers are the protocols that a client of a port offers within mutual TLS.
func (d doorway) offers() []string {
	if d.port == bytesPort {
		return []string{"istio"}
	}
	return meshHTTP
}

// drawnRequest is a request, and how the simulation is asked about it.
type drawnRequest struct {
	doorway
	raw     string
	request simulate.Request
}

func (r drawnRequest) String() string {
	return fmt.Sprintf("%s %s %d: %q", r.proxy, r.at, r.port, r.raw)
}

// bytesPort is a port of TCP of the workload.
const bytesPort = 5432

const goingOut entrance = "from the workload"

// draw draws a request: to the gateway, to a port of the workload, or from the workload.
func (m *simulatedMesh) draw(id int) drawnRequest {
	from, q := m.request()
	for m.rarely(2) && from == "client" { // more of them come in
		from, q = m.request()
	}
	out := drawnRequest{doorway: doorway{"edge", gateway, m.gateway}}
	switch {
	case from == "client":
		out.doorway = doorway{"app", goingOut, q.port}
	case m.rarely(8):
		out.doorway, out.raw = doorway{"app", []entrance{plain, mutual, other}[m.random.IntN(3)], bytesPort}, "\x01hello\n"
		out.request = m.simulated(out.doorway, q)
		return out
	case m.rarely(2):
		out.doorway = doorway{"app", []entrance{plain, mutual, other}[m.random.IntN(3)], []int{8080, 8080, 8081, 7000, 9999}[m.random.IntN(5)]}
		q.host = m.one("app.shop.test", q.host)
	}
	if q.header == nil {
		q.header = map[string]string{}
	}
	if m.rarely(3) && out.at != plain && out.at != mutual && out.at != other {
		q.host, q.path = richHost, m.one("/a?q=12", "/admin", "/Admin/x", "/x/y/z", "/b/c?q=x", "/x/A", "/e?q=1&q=2", "/")
		if m.rarely(3) {
			q.header["origin"], q.header["access-control-request-method"] = m.one("https://a.test", "https://b.test"), http.MethodGet
			q.method = m.one(http.MethodOptions, http.MethodOptions, q.method)
		}
	}
	if m.rarely(3) {
		cases := pathtest.Cases()
		q.path = cases[m.random.IntN(len(cases))].Path
	}
	if m.rarely(4) {
		q.header["x-forwarded-for"] = m.one("192.0.2.1", "192.0.2.1, 10.0.0.9", "10.0.0.9, 192.0.2.1", "x")
	}
	if m.rarely(6) {
		q.header["x-user"] = m.one("anna", "ben", "Anna")
	}
	if m.rarely(8) {
		q.host = strings.ToUpper(q.host)
	}
	if m.rarely(10) {
		q.host += m.one(".", fmt.Sprint(":", out.port), ":1")
	}
	if m.rarely(12) {
		q.method = m.one(http.MethodPut, http.MethodDelete, http.MethodPost, http.MethodOptions)
	}
	m.place(&q, m.one(m.tokens...))
	q.header["x-case"] = fmt.Sprint(id)
	out.raw = rawOf(q)
	out.request = m.simulated(out.doorway, q)
	return out
}

// place puts a token into a request.
func (m *simulatedMesh) place(q *request, token string) {
	if token == noToken {
		return
	}
	switch m.random.IntN(6) {
	case 0:
		q.header["x-token"] = token
	case 1:
		q.header["cookie"] = "a=b; session=" + token
	case 2:
		separator := "?"
		if strings.Contains(q.path, "?") {
			separator = "&"
		}
		q.path += separator + m.one("token", "access_token") + "=" + token
	default:
		q.header["authorization"] = "Bearer " + token
	}
}

// rawOf writes a request of HTTP/1.1.
func rawOf(q request) string {
	out := fmt.Sprintf("%s %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n", q.method, q.path, q.host)
	for _, name := range sortedKeys(q.header) {
		out += name + ": " + q.header[name] + "\r\n"
	}
	return out + "\r\n"
}

// simulated is how the simulation sees a request.
func (m *simulatedMesh) simulated(at doorway, q request) simulate.Request {
	out := simulate.Request{
		Protocol: simulate.HTTP, Port: at.port, Host: q.host, Path: q.path, Method: q.method, Headers: q.header, Time: time.Now(),
	}
	switch at.at {
	case gateway:
		out.Address, out.Source = "10.0.0.2", "10.0.0.2"
		return out
	case goingOut:
		out.Address, out.Source = anyAddress, "10.0.0.1"
		return out
	}
	out.Address, out.Source, out.Inbound = "10.0.0.1", "10.0.0.2", true
	if at.port == bytesPort {
		out.Protocol = simulate.TCP
	}
	if at.at != plain {
		out.Identity = shopAccounts + map[entrance]string{mutual: "client", other: "other"}[at.at]
		out.Protocol, out.ALPN, out.SNI = simulate.HTTPS, at.offers(), meshName
		if at.port == bytesPort {
			out.Protocol = simulate.TLS
		}
	}
	return out
}
