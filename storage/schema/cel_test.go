package schema_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestCEL: an expression is taken if Envoy takes it. TestEnvoyAccessLogs and TestEnvoyMetrics have Envoy take some.
func TestCEL(t *testing.T) {
	t.Parallel()
	for _, sound := range soundCEL {
		if err := schema.CheckCEL(sound); err != nil {
			t.Errorf("%s: %v", sound, err)
		}
	}
	for faulty, want := range map[string]string{
		"":                                    "is empty",
		"a ==":                                "ends too early",
		"a b":                                 "has b where it does not belong",
		"'a' == \"b":                          "cannot be read from",
		"(a":                                  "ends too early",
		"a.?b":                                "has ? where it does not belong",
		"in == 1":                             "has in where it does not belong",
		"foo(1)":                              "calls foo(), which proxies do not know",
		"a.b.c(1)":                            "calls c(), which proxies do not know",
		"string(destination.port) == '80'":    "calls string(), which proxies do not know: leave it out",
		"[1].exists(x, x == 1)":               "calls exists(), which proxies do not know",
		"a.startsWith('x', 'y')":              "calls startsWith() with 2 arguments",
		"foo{a: 1} == 1":                      "makes a message",
		"has(a)":                              "asks has(...) of something that is no field",
		"a.matches('^/a(')":                   "has a pattern that is no regular expression",
		"a # b":                               "cannot be read from",
		strings.Repeat("(", 100) + "1":        "nests deeper than",
		strings.Repeat("!", 100) + "true":     "nests deeper than",
		strings.Repeat("[", 1000000) + "true": "nests deeper than",
	} {
		if err := schema.CheckCEL(faulty); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", faulty, err, want)
		}
	}
}

var soundCEL = []string{
	"response.code >= 400",
	"connection.mtls && request.url_path.contains('v1beta3')",
	`!has(request.useragent) || !(request.useragent.startsWith("Amazon-Route53-Health-Check-Service"))`,
	"request.headers['x'].contains('a')", "int('1') == 1 ? 2 : -3", "'a' in {'a': 1, 'b': [1, 2]}", "size(request.path) > 1u",
	"request.url_path.matches('^/a.*')", "request.time.getHours() > 1", "timestamp('2020-01-01T00:00:00Z') < request.time",
	`r'a\b' == b'x'`, "0x1F == 31u", "1.5e3 > .5", "x == null", "!!(true)", "xds.node.metadata['LABELS']['app'] == '\"'",
}

const celRoots = "attributes begin with one of connection, destination, filter_state, metadata, request, response, source, upstream, upstream_filter_state, xds, and a text is in quotes"

// TestUnknownAttributes: proxies take an attribute that they do not know, and it has no value, so it is warned
// of, with the nearest known one. TestEnvoyAccessLogs has Envoy take one.
func TestUnknownAttributes(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "unknown attributes", kind: schema.Telemetry, spec: `
			tracing: [{customTags: {a: {formatter: {value: "%CEL(request.user_agent)% %CEL(request.host)%"}}}}]
			metrics: [{overrides: [{tagOverrides: {a: {value: "downstream_peer.app"}}}]}]
			accessLogging:
			- {filter: {expression: "requst.headers['x-user'] == 'joe' && requst.headers['y'] == 'z'"}}
			- {filter: {expression: "response.cod >= 400 || code > 500 || has(Response.Cod)"}}
			- {filter: {expression: "size(request['heders']) > 1 && source.principal != ''"}}`,
			warned: []string{
				"spec.tracing[0].customTags[a].formatter.value names request.user_agent, which Envoy 1.40 does not know: it has no value, and nothing matches by it; did you mean request.useragent?",
				"spec.metrics[0].overrides[0].tagOverrides[a].value names downstream_peer.app, which Envoy 1.40 does not know: it has no value, and nothing matches by it; " + celRoots,
				"spec.accessLogging[0].filter.expression names requst.headers, which Envoy 1.40 does not know: it has no value, and nothing matches by it; did you mean request.headers?",
				"spec.accessLogging[1].filter.expression names response.cod, which Envoy 1.40 does not know: it has no value, and nothing matches by it; did you mean response.code?",
				"spec.accessLogging[1].filter.expression names code, which Envoy 1.40 does not know: it has no value, and nothing matches by it; did you mean response.code?",
				"spec.accessLogging[1].filter.expression names Response.Cod, which Envoy 1.40 does not know: it has no value, and nothing matches by it; did you mean response.code?",
				"spec.accessLogging[2].filter.expression names request.heders, which Envoy 1.40 does not know: it has no value, and nothing matches by it; did you mean request.headers?",
				"spec.accessLogging[2].filter.expression names source.principal, which Envoy 1.40 does not know: it has no value, and nothing matches by it; source has address, port",
			}},
	})
}

// FuzzCEL: no text crashes the check, or makes it hang.
func FuzzCEL(f *testing.F) {
	for _, seed := range soundCEL {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) { _ = schema.CheckCEL(text) })
}
