package explain_test

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// checked asks for a check with the parameters "k=v&...", as if operations were applied.
func checked(m explain.Nodes, parameters string, ops ...storage.Op) (explain.AccessCheck, error) {
	value, err := explain.Check(m, catalogue.Types(), anywhere{})(httptest.NewRequest("GET", explain.CheckPath+"?"+parameters, nil), ops)
	if err != nil {
		return explain.AccessCheck{}, err
	}
	return *value.(*explain.AccessCheck), nil
}

// verdictOf returns the decisions of a check, such as "Forwarded: 10.1.0.1:80 Allowed, spec... allows
// it". "!" begins what a dry run says.
func verdictOf(c explain.AccessCheck) string {
	out := []string{c.Outcome}
	for _, d := range c.Destinations {
		text := strings.Join(d.Endpoints, ",")
		if a := d.Access; a == nil {
			text += " " + d.Reason
		} else {
			text += fmt.Sprintf(" %s %d %s", a.Decision, a.Status, a.Reason)
			for _, dry := range a.DryRuns {
				text += fmt.Sprintf(" ! %s %v %s", dry.Decision, dry.By, strings.Join(dry.Unmatched, ","))
			}
		}
		out = append(out, text)
	}
	for _, endpoint := range c.Unguarded {
		out = append(out, endpoint+" unguarded")
	}
	return strings.Join(out, " | ")
}

// guarded is a mesh with policies of every action: a service at two endpoints with sidecars, one
// for TCP, a gateway, and clients.
func guarded(t *testing.T) connected {
	t.Helper()
	const keys = `jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'`
	policy := func(name, app, rest string) string {
		return xdstest.Object("AuthorizationPolicy", "shop/"+name, "{selector: {matchLabels: {app: "+app+"}}, "+rest+"}")
	}
	w := xdstest.NewWorld(t,
		xdstest.Object("ServiceEntry", "shop/web", `{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, addresses: [10.9.0.1], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}],
		  endpoints: [{address: 10.1.0.1, labels: {app: web, security.istio.io/tlsMode: istio}}, {address: 10.1.0.2, labels: {app: web, version: v2}}]}`),
		xdstest.Object("ServiceEntry", "shop/db", "{hosts: [db.test], location: MESH_INTERNAL, resolution: STATIC, addresses: [10.9.0.2], ports: [{number: 5432, name: tcp, protocol: TCP}], endpoints: [{address: 10.1.0.3, labels: {app: db, security.istio.io/tlsMode: istio}}]}"),
		xdstest.Object("ServiceEntry", "shop/bare", "{hosts: [bare.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.9}]}"),
		xdstest.Object("ServiceEntry", "shop/free", "{hosts: [free.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.1.0.4, labels: {app: free}}]}"),
		xdstest.Object("WorkloadEntry", "shop/vm-3", "{address: 10.1.0.30, labels: {app: db}}"),
		xdstest.Object("Gateway", "shop/edge", "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.test]}]}"),
		xdstest.Object("VirtualService", "shop/web", "{hosts: [web.test], gateways: [edge], http: [{route: [{destination: {host: web.test}}]}]}"),
		xdstest.Object("RequestAuthentication", "shop/web", "{selector: {matchLabels: {app: web}}, jwtRules: [{issuer: a, audiences: [shop], "+keys+"}]}"),
		policy("allow", "web", "rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}, {to: [{operation: {methods: [GET]}}]}, {from: [{source: {requestPrincipals: [a/ann]}}]}, {from: [{source: {ipBlocks: [10.7.0.0/16]}}]}]"),
		policy("deny", "web", "action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}, {when: [{key: 'request.headers[x-bad]', values: ['1']}]}]"),
		policy("audit", "web", "action: AUDIT, rules: [{to: [{operation: {paths: [/audited]}}]}]"),
		policy("custom", "web", "action: CUSTOM, provider: {name: nobody}, rules: [{to: [{operation: {paths: [/custom]}}]}]"),
		xdstest.Object("AuthorizationPolicy", "shop/db", "{selector: {matchLabels: {app: db}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]}"),
		policy("edge", "edge", "action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]"),
	)
	node := func(name string, n xdstest.Node) *discovery.Proxy {
		n.Namespace, n.Certified = "shop", true
		if n.Type != discovery.Router {
			n.Interception = discovery.InterceptionRedirect
		}
		p := n.Proxy(t)
		p.Name = name
		return p
	}
	return connected{w, []*discovery.Proxy{
		node("other", xdstest.Node{IP: "10.1.0.8", Identity: "spiffe://cluster.local/ns/shop/sa/other"}), node("client", xdstest.Node{IP: "10.1.0.7", Identity: "spiffe://cluster.local/ns/shop/sa/client"}),
		node("web1", xdstest.Node{IP: "10.1.0.1"}), node("web2", xdstest.Node{IP: "10.1.0.2"}), node("db", xdstest.Node{IP: "10.1.0.3"}), node("free", xdstest.Node{IP: "10.1.0.4"}),
		node("edge", xdstest.Node{IP: "10.1.0.6", Type: discovery.Router, Labels: map[string]string{"app": "edge"}}),
	}}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	const allow, deny = "authorizationpolicy/shop/allow", "authorizationpolicy/shop/deny"
	const client, first, second = "&from=cluster.local/ns/shop/sa/client", "10.1.0.1:8080", "10.1.0.2:8080"
	both := func(text string) string { return first + "," + second + " " + text }
	const none = "Refused 403 no rule of " + allow + " allows it"
	for parameters, want := range map[string]string{
		"to=web.test":                                                         "Forwarded | " + both("Allowed 0 spec.rules[1] of "+allow+" allows it"),
		"to=web.test:80&method=POST":                                          "Fails | " + both(none),
		"to=web.test&port=80&method=POST" + client:                            "Forwarded | " + both("Allowed 0 spec.rules[0] of "+allow+" allows it"),
		"to=web.test&method=POST&from=10.1.0.7":                               "PartlyFails | " + first + " Allowed 0 spec.rules[0] of " + allow + " allows it | " + second + " " + none,
		"to=web.test&method=POST&from=10.1.0.8":                               "Fails | " + first + " " + none + " | " + second + " " + none,
		"to=web.test&method=POST&ip=10.7.1.1":                                 "Forwarded | " + both("Allowed 0 spec.rules[3] of "+allow+" allows it"),
		"to=web.test&path=/admin" + client:                                    "Fails | " + both("Refused 403 spec.rules[0] of "+deny+" denies it"),
		"to=web.test&path=/&header=x-bad=1" + client:                          "Fails | " + both("Refused 403 spec.rules[1] of "+deny+" denies it"),
		"to=web.test&path=/custom" + client:                                   "Fails | " + both("Refused 403 spec.rules[0] of authorizationpolicy/shop/custom asks the provider nobody, which the mesh configuration does not have, or whose service the proxy does not see: it is refused"),
		"to=10.1.0.1&path=/custom" + client:                                   "Fails | " + first + " Refused 403 spec.rules[0] of authorizationpolicy/shop/custom asks the provider nobody, which the mesh configuration does not have, or whose service the proxy does not see: it is refused",
		`to=web.test&method=POST&claims={"iss":"a","sub":"ann","aud":"shop"}`: "Forwarded | " + both("Allowed 0 spec.rules[2] of "+allow+" allows it"),
		`to=web.test&method=POST&claims={"iss":"a","sub":"bob","aud":"shop"}`: "Fails | " + both(none),
		`to=web.test&method=POST&claims={"iss":"a","sub":"ann","aud":"x"}`:    "Fails | " + both("Refused 403 the token is refused with 403 (Audiences in Jwt are not allowed), by requestauthentication/shop/web"),
		`to=web.test&claims={"iss":"b"}`:                                      "Fails | " + both("Refused 401 the token is refused with 401 (Jwt issuer is not configured), by requestauthentication/shop/web"),
		"to=gateway/shop/edge&path=/secret&header=host=web.test":              "Fails | 127.0.0.1:80 Refused 403 spec.rules[0] of authorizationpolicy/shop/edge denies it",
		"to=db.test":                      "Fails | 10.1.0.3:5432 Refused 0 no rule of authorizationpolicy/shop/db allows it",
		"to=db.test" + client:             "Forwarded | 10.1.0.3:5432 Allowed 0 spec.rules[0] of authorizationpolicy/shop/db allows it",
		"to=db.test&from=10.1.0.7":        "Forwarded | 10.1.0.3:5432 Allowed 0 spec.rules[0] of authorizationpolicy/shop/db allows it",
		"to=db.test&from=10.1.0.8":        "Fails | 10.1.0.3:5432 Refused 0 no rule of authorizationpolicy/shop/db allows it",
		"to=shop/vm-3&port=5432" + client: "Forwarded | 10.1.0.30:5432 Allowed 0 spec.rules[0] of authorizationpolicy/shop/db allows it",
		"to=bare.test":                    "Forwarded | 10.1.0.9:80 unguarded",
		"to=free.test":                    "Forwarded | 10.1.0.4:80 Allowed 0 no policy is for it",
		"to=10.1.0.6:80&header=host=web.test&path=/secret": "Fails | 127.0.0.1:80 Refused 403 spec.rules[0] of authorizationpolicy/shop/edge denies it",
		"to=gateway/shop/edge:80&header=host=web.test":     "Forwarded | 127.0.0.1:80 Allowed 0 no policy refuses it, and no ALLOW policy is for it",
	} {
		c, err := checked(m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
		} else if got := verdictOf(c); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", parameters, got, want)
		}
	}
	c, err := checked(m, "to=web.test&path=/audited")
	if err != nil || c.Destinations[0].Access.Audited == nil || c.Destinations[0].Access.Audited.String() != "spec.rules[0] of authorizationpolicy/shop/audit" || c.Destinations[0].Access.Policies != 4 {
		t.Errorf("%v: audited: %+v", err, c.Destinations)
	}
	for parameters, want := range map[string]string{
		"":                        "say to where",
		"to=nobody.test":          "no host of the mesh is called nobody.test, and no proxy",
		"to=web.test:81":          "web.test has the ports 80: name one of them",
		"to=web.test&port=x":      "port: must be",
		"to=web.test:80&port=81":  "port: must be",
		"to=web.test&ip=x":        "ip: must be",
		"to=web.test&claims=x":    "claims: must be",
		"to=web.test&header=x":    "use NAME=VALUE",
		"to=web.test&path=x":      "does not begin with /",
		"to=web.test&from=nobody": "no proxy, WorkloadEntry or address of an endpoint is called nobody",
		"to=gateway/shop/edge:80": "is a gateway: name the port of its server, of 80, and the host",
		"to=10.1.0.8":             "10.1.0.8 serves the ports (none): name one",
	} {
		if _, err := checked(m, parameters); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want: %s", parameters, err, want)
		}
	}
}

// TestCheckOfDocuments: policies that are not applied count, and those of a dry run say what would
// differ.
func TestCheckOfDocuments(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	put := func(name, spec string, dry bool) storage.Op {
		object := xdstest.Objects(t, xdstest.Object("AuthorizationPolicy", "shop/"+name, spec))[0]
		if dry {
			object.Annotations = map[string]string{"istio.io/dry-run": "true"}
		}
		return storage.Op{Verb: storage.Put, Config: object}
	}
	const web, free = "{selector: {matchLabels: {app: web}}, ", "{selector: {matchLabels: {app: free}}, "
	const allows = "spec.rules[1] of authorizationpolicy/shop/allow allows it"
	for _, c := range []struct {
		parameters string
		op         storage.Op
		want       string
	}{
		{"to=10.1.0.1", put("new", web+"action: DENY, rules: [{}]}", false), "Fails | 10.1.0.1:8080 Refused 403 spec.rules[0] of authorizationpolicy/shop/new denies it"},
		{"to=10.1.0.1", put("new", web+"action: DENY, rules: [{}]}", true), "Forwarded | 10.1.0.1:8080 Allowed 0 " + allows + " ! Refused spec.rules[0] of authorizationpolicy/shop/new "},
		{"to=10.1.0.1", put("new", web+"rules: []}", true), "Forwarded | 10.1.0.1:8080 Allowed 0 " + allows},
		{"to=10.1.0.1&method=POST", put("new", web+"rules: [{}]}", true), "Fails | 10.1.0.1:8080 Refused 403 no rule of authorizationpolicy/shop/allow allows it ! Allowed spec.rules[0] of authorizationpolicy/shop/new "},
		{"to=10.1.0.1&path=/admin", put("new", web+"rules: [{}]}", true), "Fails | 10.1.0.1:8080 Refused 403 spec.rules[0] of authorizationpolicy/shop/deny denies it"},
		{"to=10.1.0.1&path=/custom", put("new", web+"action: CUSTOM, provider: {name: other}, rules: [{to: [{operation: {paths: [/new]}}]}]}", false), "Fails | 10.1.0.1:8080 Refused 403 spec.rules[0] of authorizationpolicy/shop/custom asks the provider nobody, and authorizationpolicy/shop/new asks other: a workload can ask one, so what either matches is refused"},
		{"to=free.test", put("new", free+"rules: []}", true), "Forwarded | 10.1.0.4:80 Allowed 0 no policy refuses it, and no ALLOW policy is for it ! Refused <nil> authorizationpolicy/shop/new"},
		{"to=free.test", put("new", free+"rules: []}", false), "Fails | 10.1.0.4:80 Refused 403 no rule of authorizationpolicy/shop/new allows it"},
	} {
		got, err := checked(m, c.parameters, c.op)
		if err != nil || verdictOf(got) != c.want {
			t.Errorf("%s, %s: %v:\n%s\nwant:\n%s", c.parameters, c.op.Config.Spec, err, verdictOf(got), c.want)
		}
		if again, err := checked(m, c.parameters); err != nil || strings.Contains(verdictOf(again), "shop/new") {
			t.Errorf("%s: %v: the policy stayed: %s", c.parameters, err, verdictOf(again))
		}
	}
}

// TestCheckAgreesWithExplain: on random policies, modes of mutual TLS and requests, a check from a
// proxy says of each endpoint what an explanation of the request says.
func TestCheckAgreesWithExplain(t *testing.T) {
	t.Parallel()
	m, random := guarded(t), rand.New(rand.NewPCG(36, 5))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	seen := map[string]int{}
	for range 25 {
		var documents []string
		for i := range random.IntN(4) {
			action, rule := pick("ALLOW", "DENY"), pick("{}", "{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}", "{from: [{source: {notPrincipals: [cluster.local/ns/shop/sa/client]}}]}",
				"{to: [{operation: {methods: [GET]}}]}", "{to: [{operation: {paths: [/a*]}}]}", "{to: [{operation: {ports: ['5432']}}]}", "{from: [{source: {ipBlocks: [10.1.0.8]}}]}", "{from: [{source: {namespaces: [shop]}}]}",
				"{when: [{key: 'request.headers[x-bad]', notValues: ['1']}]}")
			documents = append(documents, xdstest.Object("AuthorizationPolicy", fmt.Sprintf("shop/random-%d", i), fmt.Sprintf("{selector: {matchLabels: {app: %s}}, action: %s, rules: [%s]}", pick("web", "db"), action, rule)))
		}
		documents = append(documents, xdstest.Object("PeerAuthentication", "shop/default", "{mtls: {mode: "+pick("STRICT", "PERMISSIVE", "DISABLE")+"}}"),
			xdstest.Object("DestinationRule", "shop/web", "{host: "+pick("web.test", "db.test")+", trafficPolicy: {tls: {mode: "+pick("DISABLE", "ISTIO_MUTUAL")+"}}}"))
		m.Apply(documents...)
		for range 16 {
			to, more := "web.test:80", "&path="+pick("/", "/a", "/admin", "/ab")+"&method="+pick("GET", "POST")+pick("", "&header=x-bad=1")
			if random.IntN(4) == 0 {
				to, more = "db.test:5432", ""
			}
			parameters := "from=" + pick("10.1.0.7", "10.1.0.8", "10.1.0.3") + "&to=" + to + more
			if compareCheck(t, m, parameters, seen) {
				t.Fatal(strings.Join(documents, "\n---\n"))
			}
		}
	}
	for _, outcome := range []string{explain.Allowed, explain.Refused, "none"} {
		if seen[outcome] < 20 {
			t.Errorf("%d endpoints are %s: the cases say little", seen[outcome], outcome)
		}
	}
}

// compareCheck says whether a check and an explanation differ. It counts the decisions.
func compareCheck(t *testing.T, m connected, parameters string, seen map[string]int) (differs bool) {
	t.Helper()
	values, _ := url.ParseQuery(parameters)
	e, err := explained(t, m, values.Encode())
	if err != nil {
		t.Fatal(err)
	}
	c, err := checked(m, values.Encode())
	if err != nil {
		t.Fatal(err)
	}
	byEndpoint := func(all []explain.Inbound) (out []explain.Inbound) {
		for _, in := range all {
			for i, endpoint := range in.Endpoints {
				one := in
				one.Endpoints, one.Proxies = []string{endpoint}, in.Proxies[i:i+1]
				out = append(out, one)
			}
		}
		slices.SortFunc(out, func(a, b explain.Inbound) int { return strings.Compare(a.Endpoints[0], b.Endpoints[0]) })
		return out
	}
	var inbound []explain.Inbound
	for _, d := range e.Destinations {
		inbound = append(inbound, d.Inbound...)
	}
	for _, in := range byEndpoint(inbound) {
		if in.Access == nil {
			seen["none"]++
		} else {
			seen[in.Access.Decision]++
		}
	}
	if diff := cmp.Diff(byEndpoint(inbound), byEndpoint(c.Destinations)); diff != "" || e.Outcome != c.Outcome {
		t.Errorf("%s: %s, checked %s (-explained +checked):\n%s", parameters, e.Outcome, c.Outcome, diff)
		return true
	}
	return false
}
