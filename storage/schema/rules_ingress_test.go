package schema_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestRulesOfIngresses(t *testing.T) {
	t.Parallel()
	path := func(fields string) string {
		return "{rules: [{host: a.example, http: {paths: [{" + fields + "}]}}]}"
	}
	const web, p = "backend: {service: {name: web, port: {number: 80}}}", "spec.rules[0].http.paths[0]"
	checkRules(t, []rule{
		{"whole", schema.Ingress, `{ingressClassName: istio, defaultBackend: {service: {name: rest, port: {name: http}}}, tls: [{hosts: ["*.a.example"], secretName: door}],
			rules: [{host: "*.a.example", http: {paths: [{pathType: Prefix, path: /, ` + web + `}, {pathType: Exact, path: /a/b, ` + web + `}, {pathType: ImplementationSpecific, ` + web + `}]}}]}`, nil, nil},
		{"empty", schema.Ingress, "{}", []string{"spec: has neither rules nor a defaultBackend: give it one of them"}, nil},
		{"all at once", schema.Ingress, `{ingressClassName: A_b, tls: [{hosts: [10.0.0.1], secretName: "-"}], rules: [{host: "*", http: {paths: [{path: a, backend: {}}]}}]}`, []string{
			`spec.ingressClassName: "A_b" is not valid: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character`,
			`spec.tls[0].hosts[0]: "10.0.0.1" is an address: an Ingress is for names`,
			`spec.tls[0].secretName: "-" is not valid: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character`,
			`spec.rules[0].host: "*" is not valid: a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character`,
			"spec.rules[0].http.paths[0].pathType: is missing: use Exact, Prefix or ImplementationSpecific",
			"spec.rules[0].http.paths[0].backend.service: is missing: name the service that answers",
		}, nil},
		{"no slash", schema.Ingress, path("pathType: Prefix, path: a, " + web), []string{p + `.path: must begin with a slash, is "a"`}, nil},
		{"no slash of no type", schema.Ingress, path("pathType: ImplementationSpecific, path: a, " + web), []string{p + `.path: must begin with a slash, is "a"`}, nil},
		{"unnormalized", schema.Ingress, path("pathType: Exact, path: /a//b/.., " + web), []string{
			p + ".path: must not contain //: proxies normalize paths before they compare them", p + ".path: must not end with /..: proxies normalize paths before they compare them",
		}, nil},
		{"unknown type", schema.Ingress, path("pathType: Regex, path: /, " + web), []string{p + `.pathType: must be one of Exact, Prefix, ImplementationSpecific, is "Regex"`}, nil},
		{"resource", schema.Ingress, path("pathType: Exact, path: /, backend: {resource: {kind: Bucket, name: b}}"), []string{p + ".backend.resource: is not supported: the backend of a path is a service"}, nil},
		{"both ports", schema.Ingress, path("pathType: Exact, path: /, backend: {service: {name: web, port: {name: http, number: 80}}}"), []string{p + ".backend.service.port: has a name and a number: leave one of them out"}, nil},
		{"no port", schema.Ingress, path("pathType: Exact, path: /, backend: {service: {name: web}}"), []string{p + ".backend.service.port: is missing: give its name or its number"}, nil},
		{"large port", schema.Ingress, path("pathType: Exact, path: /, backend: {service: {name: web, port: {number: 65536}}}"), []string{p + ".backend.service.port.number: must be a port from 1 to 65535, is 65536"}, nil},
		{"no paths", schema.Ingress, "{rules: [{http: {paths: []}}]}", []string{"spec.rules[0].http.paths: is missing: name a path, such as /"}, nil},
		{"odd", schema.Ingress, "{rules: [{host: a.example}], tls: [{hosts: [a.example]}]}", nil, []string{
			"spec.tls[0].secretName is missing: no server terminates TLS for these hosts", "spec.rules[0].http is missing: the rule has no effect",
		}},
		{"class", schema.IngressClass, "{controller: istio.io/ingress-controller}", nil, nil},
		{"class of nobody", schema.IngressClass, "{}", []string{"spec.controller: is missing"}, nil},
		{"class of a word", schema.IngressClass, "{controller: istio}", []string{`spec.controller: "istio" is not valid: must be a domain-prefixed path (such as "acme.io/foo")`}, nil},
		{"parameters", schema.IngressClass, "{controller: istio.io/ingress-controller, parameters: {kind: A, name: b}}", nil, []string{"spec.parameters has no effect: the controller here takes no parameters"}},
	})
}
