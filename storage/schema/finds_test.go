package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestHeaderFormats: validation refuses header values with a command that Envoy does not
// know, or not in this form. Envoy would refuse all routes of the port, or exit. Values
// that Envoy accepts are in integration/testdata/accepted.
func TestHeaderFormats(t *testing.T) {
	t.Parallel()
	const unknown, unsigned = "which proxies do not know", "has a % that begins no command"
	for value, want := range map[string]string{
		"":                             "",
		"100%% %REQ(x)%%REQ(y?:path)%": "",
		"%START_TIME(%Y-%m-%d)%":       "",
		"%DYNAMIC_METADATA(a:b):9%":    "",
		"%NO_SUCH_COMMAND%":            unknown,
		"%COALESCE(1)%":                unknown, // ends Envoy 1.40
		"%COMMON_DURATION(a:b)%":       unknown,
		"100%":                         unsigned,
		"%REQ(x)":                      unsigned,
		"%%%":                          unsigned,
		"%req(x)%":                     unsigned,
		"%REQ(x):%":                    unsigned,
		"%REQ%":                        "has %REQ%, which is not how the command REQ is written",
		"%REQ(a b)%":                   "has %REQ(a b)%",
		"%REQ(a?b?c)%":                 "has %REQ(a?b?c)%",
		"%PROTOCOL(a)%":                "has %PROTOCOL(a)%",
		"%PROTOCOL:5%":                 "has %PROTOCOL:5%",
		"%START_TIME:5%":               "has %START_TIME:5%",
		"%METADATA(a)%":                "has %METADATA(a)%",
		"%FILTER_STATE(a:b)%":          "has %FILTER_STATE(a:b)%",
		"%PATH(a)%":                    "has %PATH(a)%",
		"%QUERY_PARAMS(a)%":            "has %QUERY_PARAMS(a)%",
		"%ENVIRONMENT%":                "has %ENVIRONMENT%",
		"%UPSTREAM_METADATA(a):5%":     "has %UPSTREAM_METADATA(a):5%",
		"a\nb":                         "must be one line of text",
		strings.Repeat("a", 16384):     "",
		strings.Repeat("a", 16385):     "has 16385 bytes: 16384 is the limit",
	} {
		refused, _ := validate(t, spec(schema.VirtualService, `
			hosts: [a.b]
			http: [{directResponse: {status: 200}, headers: {response: {set: {x: `+quote(value)+`}}}}]`))
		if want == "" && len(refused) > 0 || want != "" && (len(refused) != 1 || !strings.Contains(refused[0], want)) {
			t.Errorf("%q: %q, want %q", value, refused, want)
		}
	}
}

func quote(text string) string {
	return `"` + strings.NewReplacer("\n", `\n`, `"`, `\"`, `\`, `\\`).Replace(text) + `"`
}

// TestRefusedFinds: validation once accepted these values, and Envoy refuses them. They
// cannot be made harmless, so validation refuses them by field.
func TestRefusedFinds(t *testing.T) {
	t.Parallel()
	socket, long := "unix:///"+strings.Repeat("p", 107), strings.Repeat("n", 1001)
	for _, c := range []rule{
		{name: "long sockets", kind: schema.ServiceEntry, spec: `
			hosts: [a.b]
			resolution: STATIC
			ports: [{number: 80, name: http, protocol: HTTP}]
			endpoints: [{address: "` + socket + `"}]`,
			refused: []string{"spec.endpoints[0].address: has a path of 108 bytes: 107 is the limit for a Unix socket"}},
		{name: "long sockets of a workload", kind: schema.Sidecar, spec: `
			ingress: [{port: {number: 80, name: http, protocol: HTTP}, defaultEndpoint: "` + socket + `"}]`,
			refused: []string{"spec.ingress[0].defaultEndpoint: has a path of 108 bytes: 107 is the limit for a Unix socket"}},
		{name: "several lines", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- {match: [{uri: {prefix: /}}], redirect: {uri: "a\nb", authority: "a\rb"}}
			- {match: [{uri: {prefix: /}}], redirect: {prefixRewrite: "a\0b"}}
			- {route: [{destination: {host: a.b}}], rewrite: {uri: "a\nb", authority: "a\nb"}}
			- {route: [{destination: {host: a.b}}], rewrite: {uriRegexRewrite: {match: a, rewrite: "a\nb"}}}`,
			refused: []string{
				"spec.http[0].redirect.uri: must be one line of text",
				"spec.http[0].redirect.authority: must be one line of text",
				"spec.http[1].redirect.prefixRewrite: must be one line of text",
				"spec.http[2].rewrite.uri: must be one line of text",
				"spec.http[2].rewrite.authority: must be one line of text",
				"spec.http[3].rewrite.uriRegexRewrite.rewrite: must be one line of text",
			}},
		{name: "a cookie of several lines", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {name: "a\nb", path: "/\n", attributes: [{name: "a\n", value: "\n"}]}}}}`,
			refused: []string{
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name: must be one line of text",
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.path: must be one line of text",
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[0].name: must be one line of text",
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[0].value: must be one line of text",
			}},
		{name: "long names", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http: [{match: [{queryParams: {` + long + `: {exact: x}}, headers: {` + long + `: {exact: x}}}], directResponse: {status: 200}}]`,
			refused: []string{
				"spec.http[0].match[0].headers[" + long + "]: is a name of 1001 bytes: 1000 is the limit",
				"spec.http[0].match[0].queryParams[" + long + "]: is a name of 1001 bytes: 1000 is the limit",
			}},
		{name: "escapes beyond a byte", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- {match: [{uri: {regex: '/\x{10FFFF}'}}], directResponse: {status: 200}}
			- {match: [{uri: {regex: '/[\x{fF}\x41🚀]\\x{100}\Q\x{100}\E\x{0000fe}\pL'}}], directResponse: {status: 200}}`,
			refused: []string{`spec.http[0].match[0].uri.regex: has \x{10FFFF}, and proxies match bytes: write the character itself`}},
	} {
		refused, _ := validate(t, spec(c.kind, c.spec))
		if d := cmp.Diff(c.refused, refused); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}
