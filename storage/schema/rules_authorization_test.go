package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// from, to and when write a rule of a policy with one source, operation or condition.
func from(action, source string) string {
	return "{action: " + action + ", rules: [{from: [{source: {" + source + "}}]}]}"
}

func to(action, operation string) string {
	return "{action: " + action + ", rules: [{to: [{operation: {" + operation + "}}]}]}"
}

func when(action, condition string) string {
	return "{action: " + action + ", rules: [{when: [{" + condition + "}]}]}"
}

// TestAuthorizationPolicyRules: each refusal names the field and what to do.
func TestAuthorizationPolicyRules(t *testing.T) {
	t.Parallel()
	const (
		source    = "spec.rules[0].from[0].source."
		operation = "spec.rules[0].to[0].operation."
		condition = "spec.rules[0].when[0]."
		inCustom  = "does not go with action CUSTOM, which is decided before: use ALLOW or DENY beside it"
		notBlock  = " is not an IP address or range, such as 10.1.2.3 or 10.1.0.0/16"
		empty     = `is empty: write "*" for any value`
		asText    = ` has a wildcard that is compared as text: "*" alone, at the beginning or at the end stands for any text`
		alone     = "excludes principals and namespaces: name service accounts alone, as namespace/account"
		tcp       = "spec.rules[0] denies all connections to TCP ports, which have no HTTP attributes: name the ports in to"
	)
	custom := func(rules string) string { return "{action: CUSTOM, provider: {name: opa}, rules: " + rules + "}" }
	rules := []rule{
		{name: "nothing is allowed", spec: "{}"},
		{name: "everything is allowed", spec: "{rules: [{}]}"},
		{name: "everything is denied", spec: "{action: DENY, rules: [{}]}"},
		{name: "everything is logged", spec: "{action: AUDIT, rules: [{}]}"},
		{name: "everything is asked", spec: custom("[{}]")},
		{name: "a workload", spec: "{selector: {matchLabels: {app: web}}}"},
		{name: "gateways", spec: "{targetRefs: [{group: networking.istio.io, kind: Gateway, name: door}, {group: gateway.networking.k8s.io, kind: Gateway, name: door, namespace: shop}]}"},
		{name: "a service", spec: "{targetRef: {kind: Service, name: web}}"},
		{name: "every source", spec: from("ALLOW", "principals: ['*', a/ns/b/sa/c, 'a/*', '*/c'], notPrincipals: [x], requestPrincipals: ['*'], notRequestPrincipals: [iss/sub], namespaces: ['prod-*'], notNamespaces: [test], ipBlocks: [10.0.0.1, 10.0.0.0/8, '::1', '2001:db8::/32'], notIpBlocks: [10.1.2.3/16], remoteIpBlocks: [1.2.3.4], notRemoteIpBlocks: [1.2.3.4], trustDomains: ['*.example.com'], notTrustDomains: [cluster.local]")},
		{name: "service accounts", spec: from("DENY", "serviceAccounts: [web, shop/web.v1], notServiceAccounts: [db]")},
		{name: "every operation", spec: to("ALLOW", "hosts: ['*.example.com', 'a:*'], notHosts: [b], ports: ['80', '65535'], notPorts: ['1'], methods: [GET, '*'], notMethods: [POST], paths: [/a, '/a/*', '*/a', '*', '/a/{*}/b/{**}', '/a/{**}/', '/a/{**}.txt/b/{*}'], notPaths: [/b]"),
			refused: []string{operation + `paths[6]: "/a/{**}.txt/b/{*}" has the segment "{**}.txt": a template has {*} and {**} as whole segments, and no other wildcards`}},
		{name: "every condition", spec: `{rules: [{when: [
			{key: 'request.headers[x-a]', values: [a]}, {key: 'request.headers[:authority]', values: [a]}, {key: source.ip, notValues: [10.0.0.0/8]},
			{key: remote.ip, values: ['::/0']}, {key: source.namespace, values: [a]}, {key: source.principal, values: ['*']},
			{key: source.serviceAccount, values: [a/b]}, {key: source.trustDomain, values: ['a*']}, {key: request.auth.principal, values: ['*']},
			{key: request.auth.audiences, values: [a]}, {key: request.auth.presenter, values: [a]}, {key: 'request.auth.claims[a][b]', values: [c], notValues: [d]},
			{key: destination.ip, values: [10.0.0.1]}, {key: destination.port, values: ['80']}, {key: connection.sni, values: ['*.a']},
			{key: 'experimental.envoy.filters.network.mysql_proxy[db.table]', values: ['[update]']}]}]}`},

		{name: "no rules", spec: "{action: DENY}", refused: []string{"spec.rules: is missing, so that DENY never happens: write rules: [{}] for every request"}},
		{name: "an empty list of rules", spec: "{action: DENY, rules: []}", refused: []string{"spec.rules: is missing, so that DENY never happens: write rules: [{}] for every request"}},
		{name: "an unknown action", spec: "{action: 9}", refused: []string{"spec.action: must be one of ALLOW, DENY, AUDIT, CUSTOM, is 9"}},
		{name: "CUSTOM without anything", spec: "{action: CUSTOM}", refused: []string{
			"spec.provider.name: is missing: action CUSTOM asks a provider, one of extensionProviders of the mesh configuration",
			"spec.rules: is missing, so that CUSTOM never happens: write rules: [{}] for every request",
		}},
		{name: "a provider with another action", spec: "{action: AUDIT, provider: {name: a}, rules: [{}]}", refused: []string{"spec.provider: goes with action CUSTOM only, the action is AUDIT"}},
		{name: "several ways to select", spec: "{selector: {matchLabels: {'a b': c}}, targetRef: {kind: Service, name: a}, targetRefs: [{kind: Service, name: a}]}", refused: []string{
			`spec.selector.matchLabels[a b]: "a b" is not valid: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
			"spec.selector: excludes targetRefs: set one of the two", "spec.targetRef: excludes targetRefs: set one of the two",
		}},
		{name: "a selector without labels", spec: "{selector: {}}", warned: []string{"spec.selector has no labels and selects every workload"}},
		{name: "references", spec: "{targetRefs: [{kind: Gateway, name: a, namespace: other}, {kind: Pod}, {group: apps, kind: Service, name: a}]}", refused: []string{
			"spec.targetRefs[0].namespace: must be the namespace of the policy, shop, is \"other\"",
			`spec.targetRefs[0].group: must be "networking.istio.io" for a Gateway, is ""`,
			"spec.targetRefs[1].name: is missing",
			`spec.targetRefs[1].kind: must be one of Gateway, GatewayClass, Service, ServiceEntry, is "Pod"`,
			`spec.targetRefs[2].group: must be "" for a Service, is "apps"`,
		}},
		{name: "no source and no operation", spec: "{rules: [{from: [{}, {source: {}}], to: [{}, {operation: {}}]}]}", refused: []string{
			"spec.rules[0].from[0].source: is missing: name a principal, a namespace or an address, or leave from out for any source",
			"spec.rules[0].from[1].source: is missing: name a principal, a namespace or an address, or leave from out for any source",
			"spec.rules[0].to[0].operation: is missing: name a host, a port, a method or a path, or leave to out for any operation",
			"spec.rules[0].to[1].operation: is missing: name a host, a port, a method or a path, or leave to out for any operation",
		}},
		{name: "empty values of a source", spec: from("ALLOW", "principals: [''], notPrincipals: [''], requestPrincipals: [''], notRequestPrincipals: [''], namespaces: [''], notNamespaces: [''], ipBlocks: [''], notIpBlocks: [''], remoteIpBlocks: [''], notRemoteIpBlocks: [''], trustDomains: [''], notTrustDomains: ['']"), refused: []string{
			source + "namespaces[0]: " + empty, source + "notNamespaces[0]: " + empty, source + "notPrincipals[0]: " + empty,
			source + "notRequestPrincipals[0]: " + empty, source + "notTrustDomains[0]: " + empty, source + "principals[0]: " + empty,
			source + "requestPrincipals[0]: " + empty, source + "trustDomains[0]: " + empty,
			source + `ipBlocks[0]: ""` + notBlock, source + `notIpBlocks[0]: ""` + notBlock,
			source + `notRemoteIpBlocks[0]: ""` + notBlock, source + `remoteIpBlocks[0]: ""` + notBlock,
		}},
		{name: "empty values of an operation", spec: to("ALLOW", "hosts: [''], notHosts: [''], ports: [''], notPorts: [''], methods: [''], notMethods: [''], paths: [''], notPaths: ['']"), refused: []string{
			operation + "hosts[0]: " + empty, operation + "notHosts[0]: " + empty,
			operation + `ports[0]: must be a port from 1 to 65535, is ""`, operation + `notPorts[0]: must be a port from 1 to 65535, is ""`,
			operation + "methods[0]: " + empty, operation + "notMethods[0]: " + empty, operation + "paths[0]: " + empty, operation + "notPaths[0]: " + empty,
		}},
		{name: "addresses", spec: from("ALLOW", "ipBlocks: [10.0.0, 10.0.0.0/33, 'fe80::1%eth0', '::ffff:1.2.3.4', web]"), refused: []string{
			source + `ipBlocks[0]: "10.0.0"` + notBlock, source + `ipBlocks[1]: "10.0.0.0/33"` + notBlock, source + `ipBlocks[2]: "fe80::1%eth0"` + notBlock,
			source + `ipBlocks[3]: "::ffff:1.2.3.4" is an IPv4 address within IPv6: write it as IPv4`, source + `ipBlocks[4]: "web"` + notBlock,
		}},
		{name: "ports", spec: to("ALLOW", "ports: ['0', '65536', http, '-1']"), refused: []string{
			operation + `ports[0]: must be a port from 1 to 65535, is "0"`, operation + `ports[1]: must be a port from 1 to 65535, is "65536"`,
			operation + `ports[2]: must be a port from 1 to 65535, is "http"`, operation + `ports[3]: must be a port from 1 to 65535, is "-1"`,
		}},
		{name: "wildcards", spec: to("ALLOW", "hosts: ['a.*.b'], paths: ['/a*b', '*a*', '**']"), refused: []string{
			operation + `hosts[0]: "a.*.b"` + asText, operation + `paths[0]: "/a*b"` + asText,
			operation + `paths[1]: "*a*"` + asText, operation + `paths[2]: "**"` + asText,
		}},
		{name: "templates", spec: to("ALLOW", "paths: ['a/{*}', '/a/{*}/b*', '/{**}/a/{*}', '/{*}.txt', '/{a=*}/{*}', '/{}/{*}', '/a//{*}', '/ü/{*}', '/**/{*}']"), refused: []string{
			operation + `paths[0]: "a/{*}" must begin with /`,
			operation + `paths[1]: "/a/{*}/b*" has the segment "b*": a template has {*} and {**} as whole segments, and no other wildcards`,
			operation + `paths[2]: "/{**}/a/{*}" has an operator after {**}: {**} must be the last one`,
			operation + `paths[3]: "/{*}.txt" has the segment "{*}.txt": a template has {*} and {**} as whole segments, and no other wildcards`,
			operation + `paths[4]: "/{a=*}/{*}" has the segment "{a=*}": a template has {*} and {**} as whole segments, and no other wildcards`,
			operation + `paths[5]: "/{}/{*}" has the segment "{}": a template has {*} and {**} as whole segments, and no other wildcards`,
			operation + `paths[6]: "/a//{*}" has an empty segment: a template has text, {*} or {**} between slashes`,
			operation + `paths[7]: "/ü/{*}" has the segment "ü": a template has letters, digits, - . _ ~ % ! $ & ' ( ) + , ; : @ =`,
			operation + `paths[8]: "/**/{*}" has the segment "**": a template has {*} and {**} as whole segments, and no other wildcards`,
		}},
		{name: "service accounts with others", spec: from("ALLOW", "serviceAccounts: [a], notServiceAccounts: [b], namespaces: [c]"), refused: []string{
			source + "notServiceAccounts: " + alone, source + "serviceAccounts: " + alone,
		}},
		{name: "accounts that are none", spec: from("ALLOW", "serviceAccounts: ['', 'a/*', a/b/c, /a, a/]"), refused: []string{
			source + "serviceAccounts[0]: is empty: write namespace/account, or the account alone for one of this namespace",
			source + `serviceAccounts[1]: "a/*" has a wildcard: write namespace/account, or use principals or namespaces`,
			source + `serviceAccounts[2]: "a/b/c" is not an account: write namespace/account, or the account alone for one of this namespace`,
			source + `serviceAccounts[3]: "/a" is not an account: write namespace/account, or the account alone for one of this namespace`,
			source + `serviceAccounts[4]: "a/" is not an account: write namespace/account, or the account alone for one of this namespace`,
		}},
		{name: "sources of CUSTOM", spec: custom("[{from: [{source: {principals: [a], requestPrincipals: [a], namespaces: [a], trustDomains: [a], ipBlocks: [10.0.0.1]}}, {source: {serviceAccounts: [a]}}]}]"), refused: []string{
			source + "namespaces: " + inCustom, source + "principals: " + inCustom, source + "requestPrincipals: " + inCustom, source + "trustDomains: " + inCustom,
			"spec.rules[0].from[1].source.serviceAccounts: " + inCustom,
		}},
		{name: "conditions of CUSTOM", spec: custom("[{when: [{key: source.namespace, values: [a]}, {key: 'request.auth.claims[a]', values: [a]}, {key: source.ip, values: [10.0.0.1]}]}]"), refused: []string{
			condition + `key: "source.namespace" ` + inCustom, `spec.rules[0].when[1].key: "request.auth.claims[a]" ` + inCustom,
		}},
		{name: "conditions without key or values", spec: "{rules: [{when: [{}, {key: source.ip}]}]}", refused: []string{
			condition + "key: is missing", "spec.rules[0].when[1].values: is missing: set values, notValues or both",
		}},
		{name: "values of conditions", spec: "{rules: [{when: [{key: source.ip, values: [a]}, {key: destination.port, notValues: [a]}, {key: connection.sni, values: ['']}, {key: source.serviceAccount, values: ['*']}]}]}", refused: []string{
			condition + `values[0]: "a"` + notBlock, `spec.rules[0].when[1].notValues[0]: must be a port from 1 to 65535, is "a"`,
			"spec.rules[0].when[2].values[0]: " + empty,
			`spec.rules[0].when[3].values[0]: "*" has a wildcard: write namespace/account, or use principals or namespaces`,
		}},
		{name: "keys", spec: "{rules: [{when: [{key: 'request.headers', values: [a]}, {key: 'request.headers[]', values: [a]}, {key: 'request.headers[a b]', values: [a]}, {key: 'request.auth.claims[a]b', values: [a]}, {key: 'experimental.envoy.filters.a', values: [a]}, {key: 'destination.labels[app]', values: [a]}]}]}", refused: []string{
			condition + `key: "request.headers" needs a name in brackets, as in request.headers[name]`,
			`spec.rules[0].when[1].key: "request.headers[]" needs a name in brackets, as in request.headers[name]`,
			`spec.rules[0].when[2].key: "a b" is not the name of an HTTP header`,
			`spec.rules[0].when[3].key: "request.auth.claims[a]b" needs a name in brackets, as in request.auth.claims[name]`,
			`spec.rules[0].when[4].key: "experimental.envoy.filters.a" needs the name of a filter and one key in brackets, as in experimental.envoy.filters.http.rbac[key]`,
			`spec.rules[0].when[5].key: "destination.labels[app]" is no key: put the policy into the namespace of the workloads and select them by labels`,
		}},
		{name: "a key with a slip", spec: when("ALLOW", "key: 'request.header[x-a]', values: [a]"), refused: []string{
			condition + `key: unknown key "request.header[x-a]": did you mean request.headers[x-a]?`,
		}},
		{name: "an unknown key", spec: when("ALLOW", "key: weather, values: [a]"), refused: []string{
			condition + `key: unknown key "weather": use one of connection.sni, destination.ip, destination.port, experimental.envoy.filters.name[key], remote.ip, request.auth.audiences, request.auth.claims[name], request.auth.presenter, request.auth.principal, request.headers[name], source.ip, source.namespace, source.principal, source.serviceAccount, source.trustDomain`,
		}},
		{name: "a key in another case", spec: when("ALLOW", "key: source.IP, values: [a]"), refused: []string{
			condition + `key: unknown key "source.IP": did you mean source.ip?`,
		}},
		{name: "a method in lower case", spec: to("ALLOW", "methods: [get]"), warned: []string{operation + `methods[0] "get" matches no request, since methods are compared with their case: write GET`}},
		{name: "DENY by path", spec: to("DENY", "paths: [/admin]"), warned: []string{tcp}},
		{name: "DENY by path and port", spec: to("DENY", "paths: [/admin], ports: ['80']")},
		{name: "DENY by token", spec: from("DENY", "notRequestPrincipals: ['*']"), warned: []string{tcp}},
		{name: "DENY by token and address", spec: from("DENY", "notRequestPrincipals: ['*'], ipBlocks: [10.0.0.1]")},
		{name: "ALLOW by path", spec: to("ALLOW", "paths: [/admin]")},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			refused, warned := validate(t, spec(schema.AuthorizationPolicy, strings.ReplaceAll(r.spec, "\n\t\t\t", " ")))
			if d := cmp.Diff(r.refused, refused); d != "" {
				t.Errorf("refused (-want +got):\n%s", d)
			}
			if d := cmp.Diff(r.warned, warned); d != "" {
				t.Errorf("warned (-want +got):\n%s", d)
			}
		})
	}
}

// TestDryRunRules: the annotation takes a truth value, and goes with what it watches.
func TestDryRunRules(t *testing.T) {
	t.Parallel()
	const at = "metadata.annotations[istio.io/dry-run]: "
	for _, test := range []struct{ action, value, refused string }{
		{"ALLOW", "true", ""}, {"DENY", "true", ""}, {"AUDIT", "false", ""}, {"DENY", "1", ""},
		{"AUDIT", "true", at + "goes with the actions ALLOW and DENY only, the action is AUDIT"},
		{"DENY", "yes", at + `must be true or false, is "yes"`},
	} {
		document := strings.Replace(spec(schema.AuthorizationPolicy, "{action: "+test.action+", rules: [{}]}"),
			"namespace: shop}", "namespace: shop, annotations: {istio.io/dry-run: '"+test.value+"'}}", 1)
		refused, _ := validate(t, document)
		if got := strings.Join(refused, "\n"); got != test.refused {
			t.Errorf("%s %s: got %q, want %q", test.action, test.value, got, test.refused)
		}
	}
	for key, isTypo := range map[string]bool{"istio.io/dryrun": true, "istio.io/Dry-Run": true, "istio.io/dry-runs": true, "istio.io/rev": false, "istio": false, "example.com/dryrun": false} {
		document := strings.Replace(spec(schema.AuthorizationPolicy, "{}"), "namespace: shop}", "namespace: shop, annotations: {"+key+": 'true'}}", 1)
		want := ""
		if isTypo {
			want = "metadata.annotations[" + key + "]: is none that has an effect, and the policy is enforced: did you mean istio.io/dry-run?"
		}
		if refused, _ := validate(t, document); strings.Join(refused, "\n") != want {
			t.Errorf("%s: got %q, want %q", key, refused, want)
		}
	}
}
