package explain_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestUnknownIdentity: of a caller with a certificate whose identity is not known, an answer is open
// only where it depends on the identity. A check and an explanation say the same.
func TestUnknownIdentity(t *testing.T) {
	t.Parallel()
	const (
		byName  = "{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]}"
		anybody = "{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {principals: ['*']}}]}]}"
		byPath  = "{selector: {matchLabels: {app: web}}, rules: [{to: [{operation: {paths: [/a]}}]}]}"
		notName = "{selector: {matchLabels: {app: web}}, action: DENY, rules: [{from: [{source: {notPrincipals: [cluster.local/ns/shop/sa/client]}}]}]}"
		denies  = "{selector: {matchLabels: {app: web}}, action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}"
		both    = "{selector: {matchLabels: {app: web}}, rules: [{from: [{source: {namespaces: [shop]}}], to: [{operation: {paths: [/a]}}]}]}"
		open    = "Unknown spec.rules[0].from[0].source."
	)
	for name, c := range map[string]struct {
		policies []string
		account  string // of the endpoint at the caller's address
		path     string
		want     string
	}{
		"no policy":                     {want: "Forwarded Allowed no policy is for it"},
		"ALLOW by identity":             {policies: []string{byName}, want: open + "principals of authorizationpolicy/shop/p0 asks for an identity, and that of caller is not known: its certificate is on its machine, and it names no service account. Give its bootstrap --service-account, or ask from an identity, such as cluster.local/ns/shop/sa/NAME"},
		"ALLOW of any identity":         {policies: []string{anybody}, want: "Forwarded Allowed spec.rules[0] of authorizationpolicy/shop/p0 allows it"},
		"ALLOW without, too":            {policies: []string{byName, byPath}, path: "/a", want: "Forwarded Allowed spec.rules[0] of authorizationpolicy/shop/p1 allows it"},
		"ALLOW without, of others":      {policies: []string{byName, byPath}, path: "/b", want: open},
		"ALLOW by identity and path":    {policies: []string{both}, path: "/b", want: "Fails Refused no rule of authorizationpolicy/shop/p0 allows it"},
		"DENY by identity":              {policies: []string{notName}, want: open + "notPrincipals of authorizationpolicy/shop/p0"},
		"DENY without":                  {policies: []string{byName, denies}, path: "/a", want: "Fails Refused spec.rules[0] of authorizationpolicy/shop/p1 denies it"},
		"DENY by identity, ALLOW":       {policies: []string{notName, byPath}, path: "/b", want: "Fails Refused no rule of authorizationpolicy/shop/p1 allows it"},
		"its endpoint has an account":   {policies: []string{byName}, account: "client", want: "Forwarded Allowed spec.rules[0] of authorizationpolicy/shop/p0 allows it"},
		"its endpoint has another name": {policies: []string{byName}, account: "x", want: "Fails Refused no rule of authorizationpolicy/shop/p0 allows it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := "{address: 10.1.0.7}"
			if c.account != "" {
				at = "{address: 10.1.0.7, serviceAccount: " + c.account + "}"
			}
			objects := []string{
				xdstest.Object("ServiceEntry", "shop/web", `{hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, addresses: [10.9.0.1], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}],
				  endpoints: [{address: 10.1.0.1, labels: {app: web, security.istio.io/tlsMode: istio}}]}`),
				xdstest.Object("ServiceEntry", "shop/caller", "{hosts: [caller.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ["+at+"]}"),
			}
			for i, spec := range c.policies {
				objects = append(objects, xdstest.Object("AuthorizationPolicy", "shop/p"+string(rune('0'+i)), spec))
			}
			node := func(name, ip string) *discovery.Proxy {
				p := xdstest.Node{IP: ip, Namespace: "shop", Certified: true, Interception: discovery.InterceptionRedirect}.Proxy(t)
				p.Name = name
				return p
			}
			m := connected{xdstest.NewWorld(t, objects...), []*discovery.Proxy{node("caller", "10.1.0.7"), node("web", "10.1.0.1")}}
			parameters := "from=10.1.0.7&to=web.test:80&path=" + c.path
			got, err := checked(m, parameters)
			if err != nil {
				t.Fatal(err)
			}
			in := got.Destinations[0]
			if text := strings.TrimPrefix(got.Outcome+" "+in.Access.Decision+" "+in.Access.Reason, "Unknown "); !strings.HasPrefix(text, c.want) {
				t.Errorf("%s\nwant: %s", text, c.want)
			}
			e, err := explained(t, m, parameters)
			if err != nil || e.Outcome != got.Outcome || e.Outcome == explain.Unknown && !strings.HasSuffix(e.Reason, in.Access.Reason) {
				t.Errorf("%v: explained as %s, %s; checked as %s", err, e.Outcome, e.Reason, got.Outcome)
			}
		})
	}
}

// TestUnproved: where the caller proves no identity, and a policy asks for one, the answer says why.
func TestUnproved(t *testing.T) {
	t.Parallel()
	const client = "&from=cluster.local/ns/shop/sa/client"
	m := guarded(t)
	for parameters, want := range map[string]string{
		"to=10.1.0.1" + client:                 "",
		"to=10.1.0.1&from=10.1.0.7":            "",
		"to=10.1.0.2&from=10.1.0.7":            "the endpoint 10.1.0.2:8080 has no label security.istio.io/tlsMode: istio",
		"to=10.1.0.2":                          "", // nobody
		"to=10.1.0.4&from=10.1.0.7":            "", // no policy asks
		"to=10.1.0.1&from=shop/vm-3":           "the proxy has no certificate of the mesh",
		"off to=10.1.0.1" + client:             "peerauthentication/shop/default says DISABLE there",
		"off to=10.1.0.1&from=10.1.0.7":        "peerauthentication/shop/default says DISABLE there",
		"plain to=10.1.0.1:8080&from=10.1.0.7": "a DestinationRule says so (tls mode DISABLE)",
	} {
		m := m
		if kind, rest, ok := strings.Cut(parameters, " "); ok {
			m, parameters = guarded(t), rest
			m.Apply(map[string]string{
				"off":   xdstest.Object("PeerAuthentication", "shop/default", "{mtls: {mode: DISABLE}}"),
				"plain": xdstest.Object("DestinationRule", "shop/web", "{host: web.test, trafficPolicy: {tls: {mode: DISABLE}}}"),
			}[kind])
		}
		got, err := checked(m, parameters)
		if err != nil || got.Destinations[0].Access.Unproved != want {
			t.Errorf("%s: %v: %+v, want %q", parameters, err, got.Destinations, want)
		}
	}
}

// TestMisses: where no rule allows a request, the answer says what each rule asks for and what came.
func TestMisses(t *testing.T) {
	t.Parallel()
	const allow = " of authorizationpolicy/shop/allow "
	const name, token = "spec.rules[0].from[0].source.principals" + allow + "asks for cluster.local/ns/shop/sa/client, and ", "spec.rules[2].from[0].source.requestPrincipals" + allow + "asks for a/ann, and "
	m := guarded(t)
	m.Apply(xdstest.Object("AuthorizationPolicy", "shop/free", `{selector: {matchLabels: {app: free}}, rules: [
	  {from: [{source: {notIpBlocks: [192.0.2.0/24]}}]},
	  {to: [{operation: {methods: [GET], paths: [/a, /b, /c, /d]}}, {operation: {hosts: [other.test]}}]},
	  {to: [{operation: {notPorts: ['80']}}], when: [{key: 'request.headers[x-a]', values: ['1']}]},
	  {to: [{operation: {ports: ['80']}}], when: [{key: 'request.headers[x-a]', values: ['1']}, {key: source.ip, values: [10.0.0.1]}]}]}`),
		xdstest.Object("AuthorizationPolicy", "shop/db", "{selector: {matchLabels: {app: db}}, rules: [{to: [{operation: {methods: [GET]}}]}]}"))
	const free = " of authorizationpolicy/shop/free "
	for parameters, want := range map[string][]string{
		"to=10.1.0.1&method=POST": {
			name + "nobody came", "spec.rules[1].to[0].operation.methods" + allow + "asks for GET, and POST came", token + "nothing came",
			"spec.rules[3].from[0].source.ipBlocks" + allow + "asks for 10.7.0.0/16, and 192.0.2.1 came",
		},
		`to=10.1.0.1&method=POST&from=spiffe://cluster.local/ns/shop/sa/x&claims={"iss":"a","sub":"bob","aud":"shop"}`: {
			name + "cluster.local/ns/shop/sa/x came", "spec.rules[1].to[0].operation.methods" + allow + "asks for GET, and POST came", token + "a/bob came",
			"spec.rules[3].from[0].source.ipBlocks" + allow + "asks for 10.7.0.0/16, and 192.0.2.1 came",
		},
		"to=10.1.0.4&path=/x?q&header=x-a=2": {
			"spec.rules[0].from[0].source.notIpBlocks" + free + "excludes 192.0.2.0/24, and 192.0.2.1 came",
			"spec.rules[1].to[0].operation.paths" + free + "asks for /a, /b, /c, 1 more, and /x came", "spec.rules[1].to[1].operation.hosts" + free + "asks for other.test, and free.test came",
			"spec.rules[2].to[0].operation.notPorts" + free + "excludes 80, and 80 came",
			"spec.rules[3].when[0].values" + free + "asks for 1, and 2 came",
		},
		"to=10.1.0.3": {"spec.rules[0].to[0].operation.methods of authorizationpolicy/shop/db asks for GET, and a connection of TCP came"},
		"to=10.1.0.1": nil, // allowed
	} {
		got, err := checked(m, parameters)
		if err != nil {
			t.Errorf("%s: %v", parameters, err)
			continue
		}
		var misses []string
		for _, miss := range got.Destinations[0].Access.Misses {
			misses = append(misses, miss.String())
		}
		if strings.Join(misses, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant:\n%s", parameters, strings.Join(misses, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestGatewayByItsObject: a Gateway stands for the connected gateway that it selects, whose policies
// count, else for one with the labels of its selector.
func TestGatewayByItsObject(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	const parameters = "from=gateway/shop/edge&to=web.test:80&path=/secret"
	e, err := explained(t, m, parameters)
	if err != nil || !e.Proxy.Connected || e.Proxy.Node != m.nodes[6].ID || e.Outcome != explain.Fails || e.Status != 403 {
		t.Errorf("%v: %+v, %s %d", err, e.Proxy, e.Outcome, e.Status)
	}
	elsewhere := xdstest.Node{IP: "10.1.0.5", Type: discovery.Router, Namespace: "other", Labels: map[string]string{"app": "edge"}}.Proxy(t)
	m.nodes = append([]*discovery.Proxy{elsewhere}, m.nodes...)
	if e, err = explained(t, m, parameters); err != nil || e.Proxy.Namespace != "shop" {
		t.Errorf("%v: beside one of another namespace: %+v", err, e.Proxy)
	}
	m.nodes = m.nodes[1:7]
	if e, err = explained(t, m, parameters); err != nil || e.Proxy.Connected {
		t.Errorf("%v: nobody is connected: %+v", err, e.Proxy)
	}
}
