package integration

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// explain asks a server what a proxy does with a request to a HOST:PORT. A host in q overrides
// that of to.
func (s *server) explain(from, to string, q request) (explain.Explanation, error) {
	query := url.Values{"from": {from}, "to": {to}, "path": {q.path}, "method": {q.method}}
	if q.host != "" {
		query.Add("header", "host="+q.host)
	}
	for name, value := range q.header {
		query.Add("header", name+"="+value)
	}
	var out explain.Explanation
	_, err := s.get(explain.Path+"?"+query.Encode(), &out)
	return out, err
}

// explainedMesh generates random meshes of two services behind a gateway and a sidecar, and
// requests for them. Most of the configuration works.
type explainedMesh struct {
	random    *rand.Rand
	gateway   int
	ports     [2]int // of the services
	hosts     [2]string
	upstreams []*upstream
	address   string // of the upstreams

	// What the current mesh has, by service.
	subsets  [2][]string         // those that select an endpoint
	empty    [2][]string         // those that select none
	gateways [2]string           // of the routes
	suiting  [2][]explainedMatch // the matches of the routes
}

// explainedMatch is a match, and a request that satisfies it.
type explainedMatch struct {
	match, path, method, user string
}

var explainedMatches = []explainedMatch{
	{match: "{uri: {exact: /a}}", path: "/a"},
	{match: "{uri: {prefix: /a}}", path: "/a/1"},
	{match: "{uri: {prefix: /b/}}", path: "/b/x"},
	{match: `{uri: {regex: "/[ab]/[0-9]+"}}`, path: "/b/2"},
	{match: "{headers: {x-user: {exact: anna}}}", path: "/", user: "anna"},
	{match: "{method: {exact: POST}}", path: "/", method: http.MethodPost},
	{match: "{uri: {prefix: /}, withoutHeaders: {x-user: {}}}", path: "/"},
	{match: "{uri: {exact: /c}, ignoreUriCase: true}", path: "/C"},
	{match: "{queryParams: {q: {exact: '1'}}}", path: "/?q=1"},
	{match: "{uri: {exact: /d}}, {headers: {x-user: {prefix: b}}}", path: "/d", user: "ben"},
	{match: "{gateways: [edge]}", path: "/a?q=2"},
	{match: "{uri: {prefix: /e}, gateways: [mesh]}", path: "/e/f"},
}

func (m *explainedMesh) one(of ...string) string { return of[m.random.IntN(len(of))] }

// rarely is true once in so many calls, on average.
func (m *explainedMesh) rarely(of int) bool { return m.random.IntN(of) == 0 }

// documents generates the objects of a mesh. Their names are always the same, so a mesh
// replaces the previous one.
func (m *explainedMesh) documents() string {
	var out []string
	for i := range m.hosts {
		out = append(out, m.service(i))
	}
	for i := range m.hosts {
		out = append(out, m.routes(i))
	}
	out = append(out, edgeGateway(m.gateway, m.one("*", "*", "*.explain.test", m.hosts[0])))
	return strings.Join(out, "\n---\n")
}

// service generates a service and its DestinationRule.
func (m *explainedMesh) service(i int) string {
	entry := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$host]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints:
`, "$name", fmt.Sprint("s", i), "$host", m.hosts[i], "$port", m.ports[i])
	rule := fill(`
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: $name, namespace: shop}
spec:
  host: "$host"
  subsets:
`, "$name", fmt.Sprint("s", i), "$host", m.hosts[i])
	m.subsets[i], m.empty[i] = nil, nil
	for version, u := range m.upstreams {
		runs, named := version == 0 || !m.rarely(3), version == 0 || !m.rarely(5)
		if runs {
			entry += fmt.Sprintf("  - {address: %s, ports: {http: %d}, labels: {version: v%d}}\n", m.address, u.port, version)
		}
		if named {
			rule += fmt.Sprintf("  - {name: v%d, labels: {version: v%d}}\n", version, version)
		}
		switch subset := fmt.Sprint("v", version); {
		case runs && named:
			m.subsets[i] = append(m.subsets[i], subset)
		case named:
			m.empty[i] = append(m.empty[i], subset)
		}
	}
	return entry + rule
}

func (m *explainedMesh) routes(i int) string {
	hostname := m.hosts[i]
	if m.rarely(10) {
		hostname = "*.explain.test"
	}
	m.gateways[i], m.suiting[i] = m.one("mesh", "edge", "edge, mesh", "edge, mesh", "edge, mesh", "edge, mesh"), nil
	doc := fill(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: ["$host"]
  gateways: [$gateways]
  http:
`, "$name", fmt.Sprint("s", i), "$host", hostname, "$gateways", m.gateways[i])
	drawn := 1 + m.random.IntN(5)
	for n := range drawn {
		match := explainedMatches[m.random.IntN(len(explainedMatches))]
		m.suiting[i] = append(m.suiting[i], match)
		doc += fmt.Sprintf("  - {match: [%s], %s, %s}\n", match.match, explainedMark(i, n), m.action(i))
	}
	if !m.rarely(4) {
		doc += fmt.Sprintf("  - {%s, %s}\n", explainedMark(i, drawn), m.action(i))
	}
	return doc
}

// explainedMark makes a route add a header to each response that says which route it is.
func explainedMark(service, block int) string {
	return fmt.Sprintf(`headers: {response: {set: {x-route: "virtualservice/shop/s%d spec.http[%d]"}}}`, service, block)
}

func (m *explainedMesh) action(i int) string {
	to := func() string { return "destination: " + m.destination(i) }
	switch m.random.IntN(12) {
	case 0:
		return "redirect: {uri: /elsewhere, redirectCode: 302}"
	case 1:
		return "directResponse: {status: " + m.one("418", "204", "503") + "}"
	case 2, 3:
		return "route: [{" + to() + ", weight: 40}, {" + to() + ", weight: 60}]"
	case 4:
		return "fault: {abort: {httpStatus: 429, percentage: {value: 100}}}, route: [{" + to() + "}]"
	case 5, 6:
		return "rewrite: {uri: /rewritten}, route: [{" + to() + "}]"
	}
	return "route: [{" + to() + "}]"
}

// destination generates a destination: a service or a subset of it. Rarely it is missing, or
// has no endpoint.
func (m *explainedMesh) destination(i int) string {
	if m.rarely(14) {
		return "{host: unknown.explain.test}"
	}
	if m.rarely(3) {
		i = 1 - i
	}
	subset := m.one(append([]string{""}, m.subsets[i]...)...)
	switch {
	case m.rarely(9):
		subset = m.one("v1", "v2", "v9")
	case m.rarely(3) && len(m.empty[i]) > 0:
		subset = m.one(m.empty[i]...)
	}
	if subset == "" {
		return "{host: " + m.hosts[i] + "}"
	}
	return "{host: " + m.hosts[i] + ", subset: " + subset + "}"
}

// request generates a request at a proxy that has the route. Most of the time it matches a
// route.
func (m *explainedMesh) request() (from string, q request) {
	i := m.random.IntN(len(m.hosts))
	from, q.host, q.port = "edge", m.hosts[i], m.gateway
	if m.gateways[i] == "mesh" || m.gateways[i] != "edge" && m.rarely(2) {
		from, q.port = "client", m.ports[i]
	}
	if m.rarely(20) {
		from, q.port = "client", m.ports[m.random.IntN(len(m.ports))]
	}
	if m.rarely(14) {
		q.host = m.one("other.explain.test", "elsewhere.test")
	}
	of := m.suiting[i]
	if m.rarely(3) {
		of = explainedMatches
	}
	suits := of[m.random.IntN(len(of))]
	q.path, q.method = suits.path, cmp.Or(suits.method, http.MethodGet)
	if suits.user != "" {
		q.header = map[string]string{"x-user": suits.user}
	}
	return from, q
}

// allowed returns the answers that agree with an explanation: the names of upstreams, or a
// status.
func (m *explainedMesh) allowed(e explain.Explanation) (out []string) {
	if e.Status != 0 {
		out = append(out, strconv.Itoa(e.Status))
	}
	for _, d := range e.Destinations {
		for _, u := range m.upstreams {
			if slices.Contains(d.Endpoints, local(u.port)) {
				out = append(out, u.name)
			}
		}
	}
	return out
}

// agrees compares a response with the explanation: who answers, and by which route.
func (m *explainedMesh) agrees(e explain.Explanation, got reply) error {
	if wants := m.allowed(e); !slices.Contains(wants, got.String()) {
		return fmt.Errorf("it is answered by %s, not %v", got, wants)
	}
	by := got.header.Get("x-route")
	switch {
	case by == "" && (got.echo.Upstream == "" || e.Route == nil || e.Route.Object == ""):
		return nil // Envoy adds no header if it has no cluster, or injects a fault
	case e.Route == nil || !strings.HasPrefix(e.Route.Object+" "+e.Route.Field, by) || by == "":
		return fmt.Errorf("its route is %q, not %+v", by, e.Route)
	}
	return nil
}

// explainedKinds are kinds of outcomes, each with the least number of them in a hundred
// requests.
var explainedKinds = []struct {
	outcome, reason string // the reason has to contain this
	least           float64
}{
	{explain.Forwarded, "", 40},
	{explain.Answered, "", 8},
	{explain.PartlyFails, "", 1},
	{explain.Fails, "no DestinationRule that applies has subset", 1},
	{explain.Fails, "it has no endpoint", 1},
	{explain.Fails, "there is no service", 1},
	{explain.Fails, "no route of the VirtualServices", 1},
	{explain.Fails, "no route is for host", 1},
	{explain.Fails, "which only a proxy that captures traffic knows", 1},
}

// TestEnvoyDoesWhatIsExplained generates meshes and requests, and compares the responses of
// Envoys with the explanations.
func TestEnvoyDoesWhatIsExplained(t *testing.T) {
	const meshes, requests = 100, 5
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s := startServer(t, serverOptions{})
		m := &explainedMesh{
			random: rand.New(rand.NewPCG(15, uint64(v))), gateway: freePort(t), ports: [2]int{freePort(t), freePort(t)},
			hosts: [2]string{"one.explain.test", "two.explain.test"}, address: "127.0.0.1",
			upstreams: []*upstream{startUpstream(t, "v0"), startUpstream(t, "v1"), startUpstream(t, "v2")},
		}
		s.apply(m.documents())
		edge, client := s.startPair(v)
		outcomes, counts := map[string]int{}, make([]int, len(explainedKinds))
		sender := clientOf(t)
		for n := range meshes {
			documents := m.documents()
			s.awaitSynced(s.apply(documents), "edge", "client")
			for range requests {
				from, q := m.request()
				e, err := s.explain(from, fmt.Sprintf("%s:%d", q.host, q.port), q)
				if err != nil {
					t.Fatal(err)
				}
				outcomes[e.Outcome]++
				for i, kind := range explainedKinds {
					if e.Outcome == kind.outcome && strings.Contains(e.Reason, kind.reason) {
						counts[i]++
					}
				}
				what := fmt.Sprintf("mesh %d: %s of %s%s at %s does as explained: %s (%s)", n, q.method, q.host, q.path, from, e.Outcome, e.Reason)
				eventually(t, what, func() error {
					got, err := do(t.Context(), sender, q)
					if err != nil {
						return err
					}
					if err := m.agrees(e, got); err != nil {
						return fmt.Errorf("%w; the mesh is %s", err, documents)
					}
					return nil
				})
			}
		}
		t.Logf("outcomes: %v", outcomes)
		for i, kind := range explainedKinds {
			t.Logf("%d %s %s", counts[i], kind.outcome, kind.reason)
			if float64(counts[i]) < kind.least*meshes*requests/100 {
				t.Errorf("%d requests of %d are %s with %q, want %v %% at least", counts[i], meshes*requests, kind.outcome, kind.reason, kind.least)
			}
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestGRPCClientDoesWhatIsExplained compares the calls of a gRPC client with the explanations.
func TestGRPCClientDoesWhatIsExplained(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	v1, v2 := startGRPCBackend(t, "v1"), startGRPCBackend(t, "v2")
	s.apply(grpcEntry(v1, v2), (&shop{}).rule(), fill(grpcRoutes, "$host", shopHost))
	c := s.startGRPCClient("go", "10.0.1.1", s.xds)
	awaitReply(t, c.call(anyMethod), "v1")
	for _, call := range []request{
		c.call(anyMethod), c.call("/shop.Reviews/Exact"), c.call("/shop.Api/Any"), c.call("/shop.Item/Get17"), c.call("/shop.Item/Get"),
		c.call(anyMethod, "x-user", "anna"), c.call(anyMethod, "x-group", "beta-7", "x-any", "1"), c.call(anyMethod, "x-group", "beta-7"),
		c.call("/shop.Reviews/Others"), c.call("/shop.Reviews/Others", "x-user", "bob"), c.call("/shop.Reviews/Posted"),
		c.call("/shop.Reviews/Moved"), c.call("/shop.Reviews/Missing"), c.call("/shop.Reviews/Weighted"),
		{port: c.port, host: shopHost + ":8081", path: anyMethod},
	} {
		e, err := s.explain(c.name, call.host, request{path: call.path, header: call.header})
		if err != nil {
			t.Fatal(err)
		}
		var wants []string
		for _, d := range e.Destinations {
			for _, b := range []*grpcBackend{v1, v2} {
				if slices.Contains(d.Endpoints, local(b.port)) {
					wants = append(wants, b.name)
				}
			}
		}
		if e.Outcome == explain.Fails {
			wants = []string{strconv.Itoa(http.StatusServiceUnavailable)}
		}
		if got := send(t, call); !slices.Contains(wants, got.String()) {
			t.Errorf("a call of %s%s %v is answered by %s; explained is %s %v (%s)", call.host, call.path, call.header, got, e.Outcome, wants, e.Reason)
		}
	}
	s.expectNothingRejected()
}
