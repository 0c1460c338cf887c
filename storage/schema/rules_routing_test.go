package schema_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestVirtualServiceRules(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "empty", kind: schema.VirtualService, spec: `{}`,
			refused: []string{
				"spec.hosts: is missing: only a delegate has no hosts, and it has http routes but no gateways, tcp or tls",
				"spec.http: is missing: a VirtualService needs at least one route",
			}},
		{name: "delegate", kind: schema.VirtualService, spec: `http: [{delegate: {name: a}}, {route: [{destination: {host: a.b}}]}]`,
			refused: []string{
				"spec.http[0].delegate: a delegate cannot delegate: leave it out",
			}},
		{name: "delegates", kind: schema.VirtualService, spec: `
			http:
			- match: [{uri: {prefix: /}}]
			  route: [{destination: {host: a.b}}]
			- match: [{uri: {prefix: /a}}, {port: 80}]
			  redirect: {prefixRewrite: /b}
			- redirect: {prefixRewrite: /b}
			- match: [{uri: {exact: /b}}]
			  redirect: {prefixRewrite: /b}`,
			refused: []string{
				"spec.http[3].redirect.prefixRewrite: needs a uri prefix in every match of the route",
			}},
		{name: "routes that delegate", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			  delegate: {name: x}
			  rewrite: {uri: /}
			  timeout: 1s
			  fault: {abort: {httpStatus: 500, percentage: {value: 100}}}
			  mirror: {host: c.d}
			  corsPolicy: {allowOrigins: [{exact: https://a.b}]}
			- match: [{port: 2}]
			  delegate: {name: x, namespace: other}
			  redirect: {uri: /}
			- delegate: {name: x}
			  directResponse: {status: 200}
			- delegate: {name: z}
			  route: [{destination: {host: a.b}}]`,
			refused: []string{
				"spec.http[1]: has redirect and delegate: set one of them",
				"spec.http[2]: has directResponse and delegate: set one of them",
				"spec.http[3]: has route and delegate: set one of them",
			}},
		{name: "hosts missing", kind: schema.VirtualService, spec: `
			gateways: [edge]
			http: [{route: [{destination: {host: a.b}}]}]`,
			refused: []string{
				"spec.hosts: is missing: only a delegate has no hosts, and it has http routes but no gateways, tcp or tls",
			}},
		{name: "hosts", kind: schema.VirtualService, spec: `
			hosts: ["*", reviews, "foo*.x", "*.a.com", B.A.com, "*."]
			gateways: [edge, mesh]
			http: [{route: [{destination: {host: a.b}}]}]`,
			refused: []string{
				`spec.hosts[0]: "*" cannot be routed by sidecars: name hosts, or gateways without "mesh"`,
				`spec.hosts[2]: "foo*.x" is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
				`spec.hosts[4]: "B.A.com" overlaps with "*.a.com": the hosts of one VirtualService are distinct`,
				`spec.hosts[5]: "*." is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
			},
			warned: []string{
				`spec.hosts[1] "reviews" is a short name and stands for reviews.shop.svc in the domain of the mesh; write the full host name if you mean another`,
			}},
		{name: "all hosts at a gateway", kind: schema.VirtualService, spec: `
			hosts: ["*"]
			gateways: [edge/edge]
			http: [{route: [{destination: {host: a.b}}]}]`},
		{name: "gateways", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			gateways: [a/b/c, A/b, "", "*/b", mesh, mesh]
			exportTo: ["~", "."]
			http: [{route: [{destination: {host: a.b}}], match: [{gateways: [a_b]}]}]`,
			refused: []string{
				`spec.gateways[0]: "b/c" is not a host name: its part "b/c" is not letters, digits and inner hyphens, 63 at most`,
				"spec.gateways[2]: is missing",
				`spec.gateways[3]: "*" is not valid: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character`,
				`spec.exportTo[0]: "~" must stand alone`,
				`spec.http[0].match[0].gateways[0]: "a_b" is not a host name: its part "a_b" is not letters, digits and inner hyphens, 63 at most`,
			},
			warned: []string{
				`spec.gateways[1] "A" has capital letters, as no namespace has: it means none`,
				`spec.gateways[5] "mesh" stands twice, also at spec.gateways[4]`,
			}},
		{name: "actions", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			- match: [{port: 2}]
			  route: [{destination: {host: a.b}}]
			  redirect: {uri: /}
			- match: [{port: 3}]
			  redirect: {uri: /}
			  rewrite: {uri: /}
			- match: [{port: 4}]
			  redirect: {uri: /}
			  fault: {abort: {httpStatus: 500, percentage: {value: 100}}}
			- delegate: {name: b}`,
			refused: []string{
				"spec.http[0]: does nothing: set one of route, redirect, directResponse",
				"spec.http[1]: has route and redirect: set one of them",
				"spec.http[2].rewrite: has nothing to rewrite: it goes with route, not with redirect",
				"spec.http[3].fault: does not go with redirect",
			}},
		{name: "destinations", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			  route: [{}, {destination: {host: "*"}, weight: -1}, {destination: {host: b, subset: a/b, port: {}}, weight: 2}]
			- match: [{port: 2}]
			  route: [{destination: {host: a.b}}, {destination: {host: c.d}}]
			- route: [{destination: {host: a.b}, weight: 2147483647}, {destination: {host: c.d}, weight: 2147483647}, {destination: {host: e.f}, weight: 2}]`,
			refused: []string{
				"spec.http[0].route[0].destination.host: is missing",
				`spec.http[0].route[1].destination.host: "*" is no destination: name a host`,
				"spec.http[0].route[1].weight: must not be negative, is -1",
				`spec.http[0].route[2].destination.subset: "a/b" is not valid: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character`,
				"spec.http[0].route[2].destination.port.number: must be a port from 1 to 65535, is 0",
				"spec.http[1].route: has only weights of 0: give at least one destination a share",
				"spec.http[2].route: has weights that add up to 4294967296: 4294967295 is the limit",
			},
			warned: []string{
				`spec.http[0].route[2].destination.host "b" is a short name and stands for b.shop.svc in the domain of the mesh; write the full host name if you mean another`,
			}},
		{name: "matches", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- route: [{destination: {host: a.b}}]
			  match:
			  - uri: {}
			    method: {regex: "("}
			    scheme: {prefix: ""}
			    headers: {"a b": {}, "@request.auth.claims.sub": {exact: a}, ":status": {}, x: {regex: ""}}
			    withoutHeaders: {x: {regex: "a(?=b)"}}
			    queryParams: {"": {exact: a}, q: {prefix: ""}}
			    port: 65536
			    sourceLabels: {"*": "*"}
			    sourceNamespace: a.b`,
			refused: []string{
				"spec.http[0].match[0].scheme.prefix: is empty: leave the match out",
				"spec.http[0].match[0].method.regex: error parsing regexp: missing closing ): `(`",
				`spec.http[0].match[0].headers[:status]: ":status" is not the name of an HTTP header`,
				`spec.http[0].match[0].headers[a b]: "a b" is not the name of an HTTP header`,
				"spec.http[0].match[0].headers[x].regex: is empty: leave the match out",
				"spec.http[0].match[0].withoutHeaders[x].regex: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
				"spec.http[0].match[0].queryParams[]: needs the name of a parameter",
				"spec.http[0].match[0].queryParams[q].prefix: is empty: leave the match out",
				"spec.http[0].match[0].port: must be a port from 1 to 65535, is 65536",
				`spec.http[0].match[0].sourceLabels[*]: "*" is not valid: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
				`spec.http[0].match[0].sourceLabels[*]: "*" is not valid: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
				`spec.http[0].match[0].sourceNamespace: "a.b" is not valid: must not contain dots`,
				`spec.http[0].match[0].headers[@request.auth.claims.sub]: is a claim of a token, which gateways alone route by: name gateways without "mesh"`,
			},
			warned: []string{
				"spec.http[0].match[0].uri is empty and matches every request: set one of exact, prefix, regex",
			}},
		{name: "mirrors", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			  route: [{destination: {host: a.b}}]
			  mirror: {host: "*"}
			  mirrors: [{destination: {host: a.b}}, {}, {destination: {host: a.b, port: {}}, percentage: {value: 100.5}}]
			  mirrorPercentage: {value: -1}
			  mirrorPercent: 101
			- match: [{port: 2}]
			  route: [{destination: {host: a.b}}]
			  mirrorPercentage: {value: 1}
			- match: [{port: 3}]
			  route: [{destination: {host: a.b}}]
			  mirrorPercent: 1
			  mirrors: [{destination: {host: a.b}, percentage: {value: 0.00001}}]
			- match: [{port: 4}]
			  directResponse: {status: 200}
			  mirror: {host: a.b}
			- redirect: {uri: /a}
			  mirrors: [{destination: {host: a.b}}]`,
			refused: []string{
				"spec.http[0].mirror: excludes mirrors: move it into the list",
				`spec.http[0].mirror.host: "*" is no destination: name a host`,
				"spec.http[0].mirrorPercent: must be from 0 to 100, is 101",
				"spec.http[0].mirrorPercentage.value: must be from 0 to 100, is -1",
				"spec.http[0].mirrors[1].destination: is missing",
				"spec.http[0].mirrors[2].destination.port.number: must be a port from 1 to 65535, is 0",
				"spec.http[0].mirrors[2].percentage.value: must be from 0 to 100, is 100.5",
			},
			warned: []string{
				"spec.http[0].mirrorPercent has no effect: mirrorPercentage outranks it",
				"spec.http[1].mirrorPercentage has no effect: it is the share of mirror, which is not set",
				"spec.http[2].mirrorPercent has no effect: it is the share of mirror, which is not set",
				"spec.http[2].mirrors[0].percentage.value is less than 0.0001 and mirrors no request",
				"spec.http[3].mirror has no effect: only requests that go to a destination are mirrored",
				"spec.http[4].mirrors has no effect: only requests that go to a destination are mirrored",
			}},
		{name: "CORS", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			  route: [{destination: {host: a.b}}]
			  corsPolicy: {allowOrigins: [{}, {exact: ""}, {regex: "("}, {prefix: "https://a"}], allowMethods: [get, "*"], allowHeaders: ["a b", "*"], exposeHeaders: [""], maxAge: 1.5s}
			- match: [{port: 2}]
			  route: [{destination: {host: a.b}}]
			  corsPolicy: {maxAge: 0s}
			- match: [{port: 3}]
			  route: [{destination: {host: a.b}}]
			  corsPolicy: {allowOrigin: ["https://a.b"], allowOrigins: [{exact: "https://a.b"}]}
			- redirect: {uri: /a}
			  corsPolicy: {allowOrigins: [{exact: "https://a.b"}]}`,
			refused: []string{
				"spec.http[0].corsPolicy.allowOrigins[0]: is empty: set one of exact, prefix, regex",
				"spec.http[0].corsPolicy.allowOrigins[1]: is empty: set one of exact, prefix, regex",
				"spec.http[0].corsPolicy.allowOrigins[2].regex: error parsing regexp: missing closing ): `(`",
				`spec.http[0].corsPolicy.allowMethods[0]: "get" is not a method: use GET, HEAD, POST, PUT, PATCH, DELETE, CONNECT, OPTIONS, TRACE, *`,
				`spec.http[0].corsPolicy.allowHeaders[0]: "a b" is not the name of an HTTP header`,
				`spec.http[0].corsPolicy.exposeHeaders[0]: "" is not the name of an HTTP header`,
				"spec.http[0].corsPolicy.maxAge: must be whole seconds, is 1.5s",
				"spec.http[1].corsPolicy.maxAge: must be at least 1ms, is 0s",
			},
			warned: []string{
				"spec.http[1].corsPolicy allows no origin and has no effect: set allowOrigins",
				"spec.http[2].corsPolicy.allowOrigin has no effect: allowOrigins outranks it",
				"spec.http[3].corsPolicy has no effect: only requests that go to a destination have a policy",
			}},
		{name: "redirects", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{uri: {prefix: /a}}, {uri: {exact: /b}}]
			  redirect: {prefixRewrite: /c, uri: /d, redirectCode: 300, scheme: ftp, port: 0}
			- redirect: {redirectCode: 302}`,
			refused: []string{
				"spec.http[0].redirect.redirectCode: must be one of 301, 302, 303, 307, 308, is 300",
				`spec.http[0].redirect.scheme: must be one of http, https, is "ftp"`,
				"spec.http[0].redirect.prefixRewrite: excludes uri: set one of the two",
				"spec.http[0].redirect.prefixRewrite: needs a uri prefix in every match of the route",
				"spec.http[1].redirect: leads back to where it came from: set uri, prefixRewrite, authority, scheme or a port",
			},
			warned: []string{
				"spec.http[0].redirect.port is 0 and has no effect",
			}},
		{name: "empty matches", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{uri: {prefix: ""}, port: 1}, {method: {}, port: 2}]
			  route: [{destination: {host: a.b}}]
			- match: [{uri: {prefix: ""}, port: 3}]
			  redirect: {prefixRewrite: /a}`,
			warned: []string{
				"spec.http[0].match[0].uri.prefix is empty and matches every path: leave the match out",
				"spec.http[0].match[1].method is empty and matches every request: set one of exact, prefix, regex",
				"spec.http[1].match[0].uri.prefix is empty and matches every path: leave the match out",
			}},
		{name: "matches that are never used", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{uri: {prefix: /a}}, {uri: {exact: /b}, name: x}, {uri: {regex: c.*}, headers: {x: {exact: a}}}, {port: 80, method: {exact: GET}}, {uri: {prefix: /g}, gateways: [edge]}, {uri: {prefix: /l}, sourceLabels: {app: a}}]
			  route: [{destination: {host: a.b}}]
			- match:
			  - {uri: {prefix: /ab}, headers: {x: {exact: a}}}
			  - {uri: {exact: /a}}
			  - {uri: {exact: /b}, name: z}
			  - {uri: {exact: /b}, ignoreUriCase: true}
			  - {uri: {regex: c.*}}
			  - {uri: {regex: c.*}, headers: {x: {exact: a}, z: {}}}
			  - {uri: {prefix: /d}, method: {exact: GET}, port: 80}
			  - {uri: {prefix: /d}, method: {exact: GET}}
			  - {uri: {prefix: /g}, gateways: [edge], sourceNamespace: a}
			  - {uri: {prefix: /g}}
			  - {uri: {prefix: /l}, sourceLabels: {app: b}}
			  - {uri: {prefix: /l}, sourceLabels: {app: a}, sourceNamespace: a}
			  route: [{destination: {host: a.b}}]`,
			warned: []string{
				"spec.http[1].match[0] is never used: spec.http[0].match[0] takes its requests",
				"spec.http[1].match[1] is never used: spec.http[0].match[0] takes its requests",
				"spec.http[1].match[2] is never used: spec.http[0].match[1] takes its requests",
				"spec.http[1].match[5] is never used: spec.http[0].match[2] takes its requests",
				"spec.http[1].match[6] is never used: spec.http[0].match[3] takes its requests",
				"spec.http[1].match[8] is never used: spec.http[0].match[4] takes its requests",
				"spec.http[1].match[11] is never used: spec.http[0].match[5] takes its requests",
			}},
		{name: "direct responses", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http: [{match: [{port: 1}], directResponse: {}}, {directResponse: {status: 600}}]`,
			refused: []string{
				"spec.http[0].directResponse.status: must be from 200 to 599, is 0",
				"spec.http[1].directResponse.status: must be from 200 to 599, is 600",
			}},
		{name: "rewrites", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			  route: [{destination: {host: a.b}}]
			  rewrite: {}
			- match: [{port: 2}]
			  route: [{destination: {host: a.b}}]
			  rewrite: {uri: /a, uriRegexRewrite: {match: "["}}
			- route: [{destination: {host: a.b}}]
			  rewrite: {authority: a, uriRegexRewrite: {}}
			  headers: {request: {set: {Host: b}, add: {":authority": c}}}`,
			refused: []string{
				"spec.http[0].rewrite: is empty: set uri, authority or uriRegexRewrite",
				"spec.http[1].rewrite.uriRegexRewrite: excludes uri: set one of the two",
				"spec.http[1].rewrite.uriRegexRewrite.rewrite: is missing",
				"spec.http[1].rewrite.uriRegexRewrite.match: error parsing regexp: missing closing ]: `[`",
				"spec.http[2].rewrite.uriRegexRewrite.match: is missing",
				"spec.http[2].rewrite.uriRegexRewrite.rewrite: is missing",
				"spec.http[2].headers.request.set[Host]: sets the host of the request, and so does spec.http[2].rewrite.authority: set it once",
				"spec.http[2].headers.request.add[:authority]: sets the host of the request, and so does spec.http[2].rewrite.authority: set it once",
			}},
		{name: "timeouts and retries", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			  route: [{destination: {host: a.b}}]
			  timeout: 0s
			  retries: {attempts: -1, perTryTimeout: 1.0005s, backoff: -1s, retryOn: "5xx,,99,sometimes"}
			- route: [{destination: {host: a.b}}]
			  retries: {retryOn: 5xx}`,
			refused: []string{
				"spec.http[0].timeout: must be at least 1ms, is 0s",
				"spec.http[0].retries.attempts: must not be negative, is -1",
				"spec.http[0].retries.perTryTimeout: must be whole milliseconds, is 1.0005s",
				"spec.http[0].retries.backoff: must be at least 1ms, is -1s",
				`spec.http[0].retries.retryOn: unknown condition "": use statuses and 5xx, gateway-error, reset, reset-before-request, connect-failure, envoy-ratelimited, retriable-4xx, refused-stream, retriable-status-codes, retriable-headers, http3-post-connect-failure, cancelled, deadline-exceeded, internal, resource-exhausted, unavailable`,
				"spec.http[0].retries.retryOn: 99 is not an HTTP status",
				`spec.http[0].retries.retryOn: unknown condition "sometimes": use statuses and 5xx, gateway-error, reset, reset-before-request, connect-failure, envoy-ratelimited, retriable-4xx, refused-stream, retriable-status-codes, retriable-headers, http3-post-connect-failure, cancelled, deadline-exceeded, internal, resource-exhausted, unavailable`,
				"spec.http[1].retries.attempts: is 0, which turns retries off: leave the other fields out",
			}},
		{name: "headers", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- route: [{destination: {host: a.b}}]
			  headers:
			    request: {set: {"": a, x: "100%", ":path": /, "y": "%REQ(x)%"}, remove: [Host, ":path", a b]}
			    response: {add: {x: "a\nb", host: a}}`,
			refused: []string{
				`spec.http[0].headers.request.set[]: "" is not the name of an HTTP header`,
				"spec.http[0].headers.request.set[x]: has a % that begins no command: write %% for the sign itself",
				`spec.http[0].headers.request.remove[0]: "Host" cannot be removed: every request has it`,
				`spec.http[0].headers.request.remove[1]: ":path" cannot be removed: every request has it`,
				`spec.http[0].headers.request.remove[2]: "a b" is not the name of an HTTP header`,
				"spec.http[0].headers.response.add[x]: must be one line of text",
			},
			warned: []string{
				"spec.http[0].headers.request.set[:path] is a pseudo header, which cannot be set: it has no effect",
			}},
		{name: "routes out of reach", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{uri: {prefix: /}, port: 80}, {uri: {prefix: /}, name: all}]
			  route: [{destination: {host: a.b}}]
			- route: [{destination: {host: a.b}}]
			- route: [{destination: {host: a.b}}]`,
			warned: []string{
				"spec.http[1] and what follows are never used: spec.http[0] takes every request",
			}},
		{name: "faults", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			http:
			- match: [{port: 1}]
			  route: [{destination: {host: a.b}}]
			  fault: {delay: {fixedDelay: 5s, percentage: {value: 0.1}}, abort: {httpStatus: 503, percentage: {value: 0}}}
			- match: [{port: 2}]
			  directResponse: {status: 200}
			  fault: {delay: {fixedDelay: 1ms, percent: 10}, abort: {grpcStatus: UNAVAILABLE, percentage: {value: 100}}}
			- match: [{port: 3}]
			  route: [{destination: {host: a.b}}]
			  fault: {}
			- match: [{port: 4}]
			  route: [{destination: {host: a.b}}]
			  fault: {delay: {exponentialDelay: 1s, percent: 101}, abort: {http2Error: x, percentage: {value: 0.00001}}}
			- match: [{port: 5}]
			  route: [{destination: {host: a.b}}]
			  fault: {delay: {fixedDelay: 0.5ms, percentage: {value: -1}}, abort: {httpStatus: 600, percentage: {value: NaN}}}
			- match: [{port: 6}]
			  route: [{destination: {host: a.b}}]
			  fault: {delay: {}, abort: {}}
			- route: [{destination: {host: a.b}}]
			  fault: {abort: {grpcStatus: "14", percentage: {value: 100.1}}}`,
			refused: []string{
				"spec.http[2].fault: is empty: set delay, abort or both",
				"spec.http[3].fault.delay.percent: must be from 0 to 100, is 101",
				"spec.http[3].fault.abort.percentage.value: must be 0, or from 0.0001 to 100, is 1e-05",
				"spec.http[4].fault.delay.fixedDelay: must be at least 1ms, is 500µs",
				"spec.http[4].fault.delay.percentage.value: must be 0, or from 0.0001 to 100, is -1",
				"spec.http[4].fault.abort.httpStatus: must be from 200 to 599, is 600",
				"spec.http[4].fault.abort.percentage.value: must be 0, or from 0.0001 to 100, is NaN",
				`spec.http[6].fault.abort.grpcStatus: "14" is not the name of a gRPC status: use one such as UNAVAILABLE`,
				"spec.http[6].fault.abort.percentage.value: must be 0, or from 0.0001 to 100, is 100.1",
				"spec.http[3].fault.delay.exponentialDelay: is not supported: use fixedDelay",
				"spec.http[3].fault.abort.http2Error: is not supported: use httpStatus or grpcStatus",
			},
			warned: []string{
				"spec.http[5].fault.delay has no effect: set fixedDelay",
				"spec.http[5].fault.delay has no percentage and affects no request: set percentage.value",
				"spec.http[5].fault.abort has no effect: set httpStatus or grpcStatus",
				"spec.http[5].fault.abort has no percentage and affects no request: set percentage.value",
			}},
		{name: "routes of every kind", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			tcp: [{route: [{destination: {host: a.b}}]}]
			tls: [{match: [{sniHosts: [a.b]}], route: [{destination: {host: a.b}}]}]
			http:
			- match: [{port: 80}]
			  route: [{destination: {host: a.b}}]
			- route: [{destination: {host: a.b}}]`},
		{name: "streams", kind: schema.VirtualService, spec: `
			hosts: [a.b, "*.c.d"]
			tcp:
			- match: [{destinationSubnets: [10.1.0.0/16, 10.0.0.1, 'fd00::/8'], port: 5432, sourceLabels: {a: b}, gateways: [mesh], sourceNamespace: shop}]
			  route: [{destination: {host: a.b}, weight: 1}, {destination: {host: c.d, subset: v1, port: {number: 1}}, weight: 0}]
			- route: [{destination: {host: a.b}}]
			tls:
			- match: [{sniHosts: [A.b, x.c.d, "*.y.c.d"], destinationSubnets: [10.1.0.0/16], port: 443}]
			  route: [{destination: {host: a.b}}]`},
		{name: "streams that are wrong", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			tcp:
			- match: [{destinationSubnets: [10.1.0.0/33, a.b], port: 65536, sourceNamespace: A_, gateways: [a/b/c]}]
			- route: [{destination: {host: "*"}, weight: -1}, {destination: {host: a.b}}]
			tls:
			- route: [{destination: {host: a.b}, weight: 0}, {destination: {host: c.d}, weight: 0}]
			- match: [{}, {sniHosts: [b.c, "x*.b"]}]
			  route: [{destination: {}}]`,
			refused: []string{
				`spec.tcp[0].match[0].destinationSubnets[0]: "10.1.0.0/33" is neither an address nor a range of addresses such as 10.1.0.0/16`,
				`spec.tcp[0].match[0].destinationSubnets[1]: "a.b" is neither an address nor a range of addresses such as 10.1.0.0/16`,
				"spec.tcp[0].match[0].port: must be a port from 1 to 65535, is 65536",
				`spec.tcp[0].match[0].gateways[0]: "b/c" is not a host name: its part "b/c" is not letters, digits and inner hyphens, 63 at most`,
				"spec.tcp[0].route: is missing: say where the connections go",
				`spec.tcp[1].route[0].destination.host: "*" is no destination: name a host`,
				"spec.tcp[1].route[0].weight: must not be negative, is -1",
				"spec.tls[0].match: is missing: a tls route needs a match with sniHosts",
				"spec.tls[0].route: has only weights of 0: give at least one destination a share",
				"spec.tls[1].match[0].sniHosts: is missing: name the hosts that clients ask for, of the hosts of the VirtualService",
				`spec.tls[1].match[1].sniHosts[0]: "b.c" is not within the hosts of the VirtualService, a.b: add it there`,
				`spec.tls[1].match[1].sniHosts[1]: "x*.b" is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
				"spec.tls[1].route[0].destination.host: is missing",
			},
			warned: []string{
				`spec.tcp[0].match[0].sourceNamespace "A_" cannot be a namespace: no connection comes from it`,
			}},
		{name: "streams that are never used", kind: schema.VirtualService, spec: `
			hosts: [a.b]
			tcp:
			- match: [{destinationSubnets: [10.0.0.0/8], sourceSubnet: 10.0.0.0/8}]
			  route: [{destination: {host: a.b}}]
			- match: [{}]
			  route: [{destination: {host: a.b}}]
			- route: [{destination: {host: a.b}}]`,
			warned: []string{
				"spec.tcp[2] and what follows are never used: spec.tcp[1] takes every connection",
				"spec.tcp[0].match[0].sourceSubnet is not served yet and has no effect",
			}},
	})
}

func TestDestinationRuleRules(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "empty", kind: schema.DestinationRule, spec: `{}`,
			refused: []string{
				"spec.host: is missing",
			}},
		{name: "short host", kind: schema.DestinationRule, spec: `host: reviews`,
			warned: []string{
				`spec.host "reviews" is a short name and stands for reviews.shop.svc in the domain of the mesh; write the full host name if you mean another`,
			}},
		{name: "several short hosts", kind: schema.VirtualService, spec: `
			hosts: [b, a, c.d]
			http: [{route: [{destination: {host: b}, weight: 1}, {destination: {host: a}, weight: 1}]}]`,
			warned: []string{
				`spec.hosts[0] and others: "b", "a" are short names and stand for hosts of the namespace, such as b.shop.svc in the domain of the mesh; write the full host names if you mean others`,
			}},
		{name: "many short hosts", kind: schema.VirtualService, spec: `
			hosts: [a, b, c, d]
			http: [{route: [{destination: {host: a.b}}]}]`,
			warned: []string{
				`spec.hosts[0] and others: "a", "b", "c" and more are short names and stand for hosts of the namespace, such as a.shop.svc in the domain of the mesh; write the full host names if you mean others`,
			}},
		{name: "every host", kind: schema.DestinationRule, spec: `host: "*"`},
		{name: "partial host", kind: schema.DestinationRule, spec: `host: "*.shop.svc"`,
			refused: []string{
				`spec.host: "*.shop.svc" lacks the domain of the mesh: write it out, as in "*.shop.svc.cluster.local"`,
			}},
		{name: "subsets", kind: schema.DestinationRule, spec: `
			host: a.b
			subsets: [{name: v1}, {name: v1, labels: {a: b}}, {labels: {a: b c}}, {name: a|b, trafficPolicy: {}}]`,
			refused: []string{
				"spec.subsets[2].name: is missing",
				`spec.subsets[2].labels[a]: "b c" is not valid: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
				`spec.subsets[3].name: "a|b" is not valid: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character`,
				"spec.subsets[3].trafficPolicy: is empty: set at least one of its fields, or leave it out",
				`spec.subsets[1].name: "v1" is set twice, also at spec.subsets[0].name`,
			},
			warned: []string{
				"spec.subsets[0] has neither labels nor a trafficPolicy: it is the whole service",
			}},
		{name: "empty blocks", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  connectionPool: {}
			  portLevelSettings: [{}, {port: {number: 80}}, {port: {number: 80}, loadBalancer: {consistentHash: {}}}]`,
			refused: []string{
				"spec.trafficPolicy.connectionPool: is empty: set tcp or http, or leave it out",
				"spec.trafficPolicy.portLevelSettings[0].port: is missing: name the number of a port of the service",
			},
			warned: []string{
				"spec.trafficPolicy.portLevelSettings[2].port.number 80 has a policy before, at spec.trafficPolicy.portLevelSettings[1]: this one has no effect",
				"spec.trafficPolicy.portLevelSettings[2].loadBalancer.consistentHash lacks what to hash, and proxies choose endpoints at random: set one of httpHeaderName, httpCookie, useSourceIp, httpQueryParameterName",
			}},
		{name: "a hash of nothing", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: false}}}`,
			warned: []string{
				"spec.trafficPolicy.loadBalancer.consistentHash lacks what to hash, and proxies choose endpoints at random: set one of httpHeaderName, httpCookie, useSourceIp, httpQueryParameterName",
			}},
		{name: "consistent hash", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {ttl: -1s, attributes: [{}]}, minimumRingSize: 9999999, ringHash: {minimumRingSize: 9999999}}}}
			subsets:
			- {name: a, labels: {a: b}, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: a b, maglev: {tableSize: 4}}}}}
			- {name: b, labels: {a: b}, trafficPolicy: {loadBalancer: {consistentHash: {httpQueryParameterName: "", maglev: {tableSize: 5000077}}}}}
			- {name: c, labels: {a: b}, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, minimumRingSize: 5}}}}`,
			refused: []string{
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name: is missing: name the cookie to hash",
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.ttl: must not be negative, is -1s",
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[0].name: is missing",
				"spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize: excludes ringHash and maglev: use ringHash.minimumRingSize",
				"spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize: must be at most 8388608, is 9999999",
				"spec.trafficPolicy.loadBalancer.consistentHash.ringHash.minimumRingSize: must be at most 8388608, is 9999999",
				"spec.subsets[0].trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: must be a prime number, is 4",
				"spec.subsets[1].trafficPolicy.loadBalancer.consistentHash.httpQueryParameterName: is empty",
				"spec.subsets[1].trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: must be at most 5000011, is 5000077",
			},
			warned: []string{
				`spec.subsets[0].trafficPolicy.loadBalancer.consistentHash.httpHeaderName "a b" is not the name of an HTTP header: requests lack it, and proxies choose endpoints at random`,
			}},
		{name: "a huge ring", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: 8388608}}}}`,
			warned: []string{"spec.trafficPolicy.loadBalancer.consistentHash.ringHash.minimumRingSize is 8388608: " +
				"proxies get a ring of 1048576, as a larger one stops them for seconds at each change of an endpoint"}},
		{name: "endless times", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  connectionPool: {tcp: {connectTimeout: 3153600001s}, http: {idleTimeout: 9223372036s}}
			  loadBalancer: {consistentHash: {httpCookie: {name: a, ttl: 315576000000s}}}`,
			refused: []string{
				"spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.ttl: must be at most 876000h0m0s, is 2562047h47m16.854775807s",
				"spec.trafficPolicy.connectionPool.tcp.connectTimeout: must be at most 876000h0m0s, is 876000h0m1s",
				"spec.trafficPolicy.connectionPool.http.idleTimeout: must be at most 876000h0m0s, is 2562047h47m16s",
			}},
		{name: "connection pool", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  connectionPool:
			    tcp: {maxConnections: -1, connectTimeout: 0s, maxConnectionDuration: 0.0001s, idleTimeout: -1s, tcpKeepalive: {time: 0s, interval: 0s}}
			    http: {http1MaxPendingRequests: -1, http2MaxRequests: -1, maxRequestsPerConnection: -1, maxRetries: -1, maxConcurrentStreams: -1, idleTimeout: -2s, useClientProtocol: true, h2UpgradePolicy: UPGRADE, http2KeepAlive: {interval: 0s}}`,
			refused: []string{
				"spec.trafficPolicy.connectionPool.tcp.maxConnections: must not be negative, is -1",
				"spec.trafficPolicy.connectionPool.tcp.connectTimeout: must be at least 1ms, is 0s",
				"spec.trafficPolicy.connectionPool.tcp.maxConnectionDuration: must be at least 1ms, is 100µs",
				"spec.trafficPolicy.connectionPool.tcp.idleTimeout: must be at least 1ms, is -1s",
				"spec.trafficPolicy.connectionPool.tcp.tcpKeepalive.time: must be at least 1ms, is 0s",
				"spec.trafficPolicy.connectionPool.tcp.tcpKeepalive.interval: must be at least 1ms, is 0s",
				"spec.trafficPolicy.connectionPool.http.http1MaxPendingRequests: must not be negative, is -1",
				"spec.trafficPolicy.connectionPool.http.http2MaxRequests: must not be negative, is -1",
				"spec.trafficPolicy.connectionPool.http.maxRequestsPerConnection: must not be negative, is -1",
				"spec.trafficPolicy.connectionPool.http.maxRetries: must not be negative, is -1",
				"spec.trafficPolicy.connectionPool.http.maxConcurrentStreams: must not be negative, is -1",
				"spec.trafficPolicy.connectionPool.http.idleTimeout: must be at least 1ms, is -2s",
				"spec.trafficPolicy.connectionPool.http.http2KeepAlive.interval: must be at least 1ms, is 0s",
				"spec.trafficPolicy.connectionPool.http.http2KeepAlive.timeout: is missing",
				"spec.trafficPolicy.connectionPool.http.useClientProtocol: excludes h2UpgradePolicy UPGRADE: the client's protocol is either kept or upgraded",
			}},
		{name: "idle timeouts that are off", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy: {connectionPool: {tcp: {idleTimeout: 0s}, http: {idleTimeout: 0s}}}`},
		{name: "outlier detection", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  outlierDetection: {interval: 0s, baseEjectionTime: 0.0001s, maxEjectionPercent: 101, minHealthPercent: -1, consecutiveLocalOriginFailures: 3, outlierDetectionHttpErrorCodes: [99, 503, 600]}
			  portLevelSettings: [{port: {number: 80}, outlierDetection: {consecutiveErrors: 3, consecutive5xxErrors: 0}}]`,
			refused: []string{
				"spec.trafficPolicy.outlierDetection.interval: must be at least 1ms, is 0s",
				"spec.trafficPolicy.outlierDetection.baseEjectionTime: must be at least 1ms, is 100µs",
				"spec.trafficPolicy.outlierDetection.maxEjectionPercent: must be from 0 to 100, is 101",
				"spec.trafficPolicy.outlierDetection.minHealthPercent: must be from 0 to 100, is -1",
				"spec.trafficPolicy.outlierDetection.consecutiveLocalOriginFailures: needs splitExternalLocalOriginErrors: true, which counts these failures apart",
				"spec.trafficPolicy.outlierDetection.outlierDetectionHttpErrorCodes[0]: must be from 100 to 599, is 99",
				"spec.trafficPolicy.outlierDetection.outlierDetectionHttpErrorCodes[2]: must be from 100 to 599, is 600",
			},
			warned: []string{
				"spec.trafficPolicy.portLevelSettings[0].outlierDetection ejects no endpoint: consecutive5xxErrors is 0, and consecutiveGatewayErrors is not set",
				"spec.trafficPolicy.portLevelSettings[0].outlierDetection.consecutiveErrors is not served yet and has no effect",
			}},
		{name: "localities", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  loadBalancer:
			    zoneAwareLbSetting: {enabled: true}
			    localityLbSetting:
			      distribute: [{from: "", to: {a: 0, b: 101}}, {from: a/b/c/d, to: {"a/*": 50, a/b: 40}}, {from: "a/*/b", to: {a//b: 100}}, {from: eu, to: {eu: 100}}, {from: eu/*, to: {eu: 100}}]
			      failover: [{from: eu, to: eu}, {from: eu/a, to: "*"}, {from: eu, to: us}]
			      failoverPriority: ["", topology.kubernetes.io/region]
			  portLevelSettings: [{port: {number: 80}, loadBalancer: {localityLbSetting: {failoverPriority: [rack]}}}]`,
			refused: []string{
				"spec.trafficPolicy.loadBalancer.zoneAwareLbSetting: excludes localityLbSetting: set one of them",
				"spec.trafficPolicy.loadBalancer.localityLbSetting.failover: excludes distribute: set one of them",
				"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].from: is missing: name a region, region/zone or region/zone/subzone",
				"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to[a]: must be from 1 to 100, is 0",
				"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to[b]: must be from 1 to 100, is 101",
				"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to: the weights must add up to 100, and add up to 101",
				"spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].to: the weights must add up to 100, and add up to 90",
				`spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].to: "a/*" and "a/b" overlap: which of them counts would be unclear`,
				`spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[2].from: "a/*/b": "*" stands for all that is last`,
				`spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[2].to[a//b]: "a//b" has an empty part`,
				`spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[4].from: "eu/*" is never used, as an earlier one is for "eu": put the narrower first`,
				`spec.trafficPolicy.loadBalancer.localityLbSetting.failover[0].to: must be another region than from, is "eu"`,
				`spec.trafficPolicy.loadBalancer.localityLbSetting.failover[1].from: must be one region, is "eu/a"`,
				`spec.trafficPolicy.loadBalancer.localityLbSetting.failover[1].to: must be one region, is "*"`,
				`spec.trafficPolicy.loadBalancer.localityLbSetting.failoverPriority[1]: "topology.kubernetes.io/region" excludes failover, which orders regions, too`,
			},
			warned: []string{
				"spec.trafficPolicy.loadBalancer.localityLbSetting.failoverPriority has no effect beside distribute",
				`spec.trafficPolicy.loadBalancer.localityLbSetting.failover[2] has no effect: an earlier one is for region "eu", too`,
				"spec.trafficPolicy.loadBalancer.localityLbSetting.failoverPriority[0] is empty and has no effect: name a label",
				"spec.trafficPolicy.portLevelSettings[0].loadBalancer.localityLbSetting has no effect without outlierDetection, which finds out that a locality fails",
			}},
		{name: "zones", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  loadBalancer: {zoneAwareLbSetting: {failover: [{from: eu, to: eu}, {from: eu/a, to: us}], failoverPriority: [rack, topology.kubernetes.io/zone=a], minClusterSize: 0}}
			  portLevelSettings:
			  - {port: {number: 80}, loadBalancer: {simple: PASSTHROUGH, zoneAwareLbSetting: {}}}
			  - {port: {number: 81}, loadBalancer: {consistentHash: {useSourceIp: true}, zoneAwareLbSetting: {enabled: true}}}
			  - {port: {number: 82}, loadBalancer: {simple: PASSTHROUGH, zoneAwareLbSetting: {enabled: false}}}
			  - {port: {number: 83}, loadBalancer: {zoneAwareLbSetting: {failover: [{from: eu, to: us}, {from: eu, to: as}], failoverPriority: [""]}}}`,
			refused: []string{
				`spec.trafficPolicy.loadBalancer.zoneAwareLbSetting.failover[0].to: must be another region than from, is "eu"`,
				`spec.trafficPolicy.loadBalancer.zoneAwareLbSetting.failover[1].from: must be one region, is "eu/a"`,
				`spec.trafficPolicy.loadBalancer.zoneAwareLbSetting.failoverPriority[1]: "topology.kubernetes.io/zone" is not for this list: regions and zones are ordered by themselves`,
				"spec.trafficPolicy.loadBalancer.zoneAwareLbSetting.minClusterSize: must be at least 1, is 0",
			},
			warned: []string{
				"spec.trafficPolicy.portLevelSettings[0].loadBalancer.zoneAwareLbSetting has no effect beside simple PASSTHROUGH, which chooses no endpoint",
				"spec.trafficPolicy.portLevelSettings[1].loadBalancer.zoneAwareLbSetting prefers the region, and no zone: consistentHash chooses the endpoint",
				`spec.trafficPolicy.portLevelSettings[3].loadBalancer.zoneAwareLbSetting.failover[1] has no effect: an earlier one is for region "eu", too`,
				"spec.trafficPolicy.portLevelSettings[3].loadBalancer.zoneAwareLbSetting.failoverPriority[0] is empty and has no effect: name a label",
			}},
		{name: "warm-up, retry budget and PROXY protocol", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  loadBalancer: {simple: RANDOM, warmup: {minimumPercent: 101, aggression: -1}}
			  retryBudget: {percent: -1, budgetInterval: -1s}
			  proxyProtocol: {}
			  tunnel: {targetHost: a, targetPort: 1}`,
			refused: []string{
				"spec.trafficPolicy.loadBalancer.warmup.duration: is missing: say how long a new endpoint is warmed up",
				"spec.trafficPolicy.loadBalancer.warmup.minimumPercent: must be from 0 to 100, is 101",
				"spec.trafficPolicy.loadBalancer.warmup.aggression: must not be negative, is -1",
				"spec.trafficPolicy.retryBudget.percent: must be from 0 to 100, is -1",
				"spec.trafficPolicy.retryBudget.budgetInterval: must be at least 1ms, is -1s",
				"spec.trafficPolicy.proxyProtocol: excludes tunnel: set one of them",
			},
			warned: []string{
				"spec.trafficPolicy.loadBalancer.warmup has no effect: only LEAST_REQUEST and ROUND_ROBIN warm endpoints up",
			}},
		{name: "TLS everywhere", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy: {tls: {mode: ISTIO_MUTUAL}, portLevelSettings: [{port: {number: 443}, tls: {mode: SIMPLE, sni: a.b}}]}
			subsets: [{name: a, labels: {a: b}, trafficPolicy: {tls: {mode: MUTUAL, credentialName: c}}}]`},
		{name: "not served", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy:
			  outlierDetection: {consecutiveErrors: 3}
			  tunnel: {targetHost: a, targetPort: 1}
			  loadBalancer: {simple: ROUND_ROBIN, warmup: {duration: 1s}, warmupDurationSecs: 1s}`,
			warned: []string{
				"spec.trafficPolicy.loadBalancer.warmupDurationSecs has no effect beside warmup",
				"spec.trafficPolicy.outlierDetection.consecutiveErrors is not served yet and has no effect",
			}},
		{name: "tunnels", kind: schema.DestinationRule, spec: `
			host: a.b
			trafficPolicy: {tunnel: {protocol: PUT, targetHost: "*.b", targetPort: 70000}}
			subsets: [{name: a, trafficPolicy: {tunnel: {}}}, {name: b, trafficPolicy: {tunnel: {protocol: POST, targetHost: "fd00::1", targetPort: 1}}}]`,
			refused: []string{
				`spec.trafficPolicy.tunnel.protocol: must be CONNECT or POST, is "PUT"`,
				`spec.trafficPolicy.tunnel.targetHost: "*.b" is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
				"spec.trafficPolicy.tunnel.targetPort: must be a port from 1 to 65535, is 70000",
				"spec.subsets[0].trafficPolicy.tunnel.targetHost: is missing",
				"spec.subsets[0].trafficPolicy.tunnel.targetPort: must be a port from 1 to 65535, is 0",
			}},
		{name: "clients", kind: schema.DestinationRule, spec: `
			host: a.b
			workloadSelector: {matchLabels: {a: b}}
			exportTo: ["."]`},
		{name: "clients of other namespaces", kind: schema.DestinationRule, spec: `
			host: a.b
			workloadSelector: {matchLabels: {a: "*"}}
			exportTo: ["*"]`,
			refused: []string{
				`spec.workloadSelector.matchLabels[a]: has no wildcards: name the label and its value, is "a=*"`,
				`spec.exportTo: excludes workloadSelector, which selects proxies of the rule's own namespace: use ["."], or leave it out`,
			}},
		{name: "all clients", kind: schema.DestinationRule, spec: `
			host: a.b
			workloadSelector: {}`,
			warned: []string{"spec.workloadSelector has no labels and selects every proxy of the namespace"}},
	})
}

func TestGatewayRules(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "empty", kind: schema.Gateway, spec: `{}`,
			refused: []string{
				"spec.servers: is missing: a gateway needs at least one server",
			}},
		{name: "servers", kind: schema.Gateway, spec: `
			selector: {a: b c}
			servers:
			- {}
			- {port: {number: 0, name: "", protocol: ""}, hosts: []}
			- {port: {number: 80, name: http, protocol: SMTP}, hosts: ["a/b/c", "Shop/a.b", "~/a.b", "*.", "*"]}
			- {port: {number: 81, name: http, protocol: HTTP, targetPort: 5}, hosts: [a.b, a.b], bind: unix:///a}
			- {port: {number: 82, name: h82, protocol: HTTP}, hosts: [a.b], bind: localhost, defaultEndpoint: 127.0.0.1:1}`,
			refused: []string{
				`spec.selector[a]: "b c" is not valid: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
				"spec.servers[0].port: is missing: number, name and protocol",
				"spec.servers[1].port.name: is missing: every port has a name of its own",
				"spec.servers[1].port.protocol: is missing: HTTP, for instance",
				"spec.servers[1].port.number: must be a port from 1 to 65535, is 0",
				`spec.servers[1].hosts: is missing: name at least one host, "*" for all`,
				`spec.servers[2].port.protocol: unknown protocol "SMTP": use one of HTTP, HTTP2, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, MYSQL, REDIS, UDP, HTTP_PROXY`,
				`spec.servers[2].hosts[0]: "b/c" is not a host name: its part "b/c" is not letters, digits and inner hyphens, 63 at most`,
				`spec.servers[2].hosts[2]: "~" is not valid: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character`,
				`spec.servers[2].hosts[3]: "*." is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
				"spec.servers[3].port.number: must be 0 for a Unix domain socket, is 81",
				`spec.servers[3].hosts[1]: "a.b" is set twice, also at spec.servers[3].hosts[0]`,
				"spec.servers[3].port.targetPort: is no longer a field of gateways: leave it out",
				`spec.servers[4].bind: must be an IP address, is "localhost"`,
				`spec.servers[3].port.name: "http" is set twice, also at spec.servers[2].port.name`,
			},
			warned: []string{
				`spec.servers[2].hosts[1] "Shop" has capital letters, as no namespace has: it means none`,
				"spec.servers[4].defaultEndpoint is not served yet and has no effect",
			}},
		{name: "Unix domain sockets", kind: schema.Gateway, spec: `
			servers:
			- {port: {number: 0, name: a, protocol: HTTP}, bind: unix:///run/a.sock, hosts: ["*"]}
			- {port: {name: b, protocol: TCP}, bind: "unix://@b", hosts: ["*"]}
			- {port: {name: c, protocol: HTTP}, bind: "unix://c", hosts: ["*"]}`,
			refused: []string{
				`spec.servers[2].bind: must be unix:// and an absolute path, is "unix://c"`,
			}},
		{name: "certificates on a plaintext port", kind: schema.Gateway, spec: `
			servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: a}}]`,
			refused: []string{
				"spec.servers[0].tls: certificates and modes need protocol HTTPS or TLS: a plaintext port takes httpsRedirect only",
			}},
		{name: "servers of bytes", kind: schema.Gateway, spec: `
			servers:
			- {port: {number: 445, name: tcp, protocol: TCP}, hosts: ["*"], bind: 127.0.0.1}
			- {port: {number: 3306, name: mysql, protocol: MySQL}, hosts: ["*"], defaultEndpoint: 127.0.0.1:1}
			- {port: {number: 446, name: redirect, protocol: TCP}, hosts: ["*"], tls: {httpsRedirect: true}}
			- {port: {number: 447, name: cert, protocol: TCP}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: a}}`,
			refused: []string{
				"spec.servers[2].tls: needs protocol HTTPS or TLS: use TLS for a server that ends TLS and passes on what is within",
				"spec.servers[3].tls: needs protocol HTTPS or TLS: use TLS for a server that ends TLS and passes on what is within",
			},
			warned: []string{
				"spec.servers[1].defaultEndpoint is not served yet and has no effect",
			}},
		{name: "not served", kind: schema.Gateway, spec: `
			servers:
			- {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: a}}
			- {port: {number: 444, name: tls, protocol: TLS}, hosts: ["*"]}
			- {port: {number: 445, name: udp, protocol: UDP}, hosts: ["*"]}`,
			refused: []string{
				"spec.servers[1].tls: is missing: protocol TLS needs it",
			},
			warned: []string{
				"spec.servers[2] is a server of protocol UDP on port 445, which is not served yet and has no effect",
			}},
	})
}

func TestSidecarRules(t *testing.T) {
	t.Parallel()
	checkRules(t, []rule{
		{name: "empty", kind: schema.Sidecar, spec: `workloadSelector: {}`,
			refused: []string{
				"spec: is empty: set at least one of ingress, egress, outboundTrafficPolicy and inboundConnectionPool",
			},
			warned: []string{
				"spec.workloadSelector has no labels and selects every workload",
			}},
		{name: "ingress", kind: schema.Sidecar, spec: `
			ingress:
			- {}
			- {port: {number: 0}, bind: localhost, captureMode: IPTABLES, defaultEndpoint: 10.0.0.1:80}
			- {port: {number: 80, protocol: HTTP, targetPort: 81}, bind: unix:///a, defaultEndpoint: "127.0.0.1"}
			- {port: {number: 80, protocol: UDP}, defaultEndpoint: "127.0.0.1:0", tls: {mode: SIMPLE}, connectionPool: {}}
			- {port: {number: 81, protocol: SMTP}, defaultEndpoint: unix://a}`,
			refused: []string{
				"spec.ingress[0].port: is missing: number, protocol and name",
				"spec.ingress[1].port.number: must be a port from 1 to 65535, is 0",
				`spec.ingress[1].bind: must be an IP address, is "localhost"`,
				`spec.ingress[1].defaultEndpoint: must be on 127.0.0.1, [::1], 0.0.0.0 or [::], the workload itself, is "10.0.0.1:80"`,
				"spec.ingress[2].bind: must be an IP address: an ingress listener has no socket, and its defaultEndpoint may be one",
				`spec.ingress[2].defaultEndpoint: must be an address and a port such as 127.0.0.1:8080, is "127.0.0.1"`,
				"spec.ingress[3].connectionPool: is empty: set tcp or http, or leave it out",
				"spec.ingress[3].tls.serverCertificate: is missing: mode SIMPLE needs it",
				"spec.ingress[3].tls.privateKey: is missing: mode SIMPLE needs it",
				`spec.ingress[3].defaultEndpoint: must have a port from 1 to 65535, is "127.0.0.1:0"`,
				`spec.ingress[4].port.protocol: unknown protocol "SMTP": use one of HTTP, HTTP2, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, MYSQL, REDIS, UDP, HTTP_PROXY`,
				`spec.ingress[4].defaultEndpoint: must be unix:// and an absolute path, is "unix://a"`,
				`spec.ingress[3].port.number: 80 is set twice, also at spec.ingress[2].port.number: give each of the listeners a bind of its own, or put their hosts into one`,
				"spec.ingress[2].port.targetPort: is no longer a field of sidecars: leave it out",
			},
			warned: []string{
				"spec.ingress[1].port.protocol is missing: HTTP is looked for where traffic is captured, else the port is plain TCP",
				"spec.ingress[1].captureMode IPTABLES is for sidecars that capture traffic: for others the listener is a plain one on its address and port",
				"spec.ingress[3].port.protocol UDP is not served yet: the listener has no effect",
			}},
		{name: "egress", kind: schema.Sidecar, spec: `
			egress:
			- {hosts: ["*/*"]}
			- {port: {number: 80, protocol: HTTP}}
			- {port: {number: 80, protocol: HTTP_PROXY}, hosts: [a.b, "~/*", ~shop/a.b, "~.b/c", "./a.b", "./a.b"]}
			- {bind: unix:///a, hosts: ["~/*"]}`,
			refused: []string{
				"spec.egress[1].hosts: is missing: name at least one namespace/host, */* for all",
				`spec.egress[2].hosts[0]: "a.b" lacks a namespace: write namespace/host, such as */a.b`,
				`spec.egress[2].hosts[3]: ".b" is not valid: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character`,
				"spec.egress[3].port: is missing: a Unix domain socket needs number 0 and a protocol",
				`spec.egress[2].port.number: 80 is set twice, also at spec.egress[1].port.number: give each of the listeners a bind of its own, or put their hosts into one`,
				"spec.egress[0]: has no port and takes all the rest: it must be the last, and the only one",
			},
			warned: []string{
				`spec.egress[2].hosts[5] "./a.b" is listed twice, also at [4]`,
			}},
		{name: "listeners of one port", kind: schema.Sidecar, spec: `
			ingress:
			- {port: {number: 80, protocol: HTTP, name: a}, bind: 10.0.0.1, defaultEndpoint: "127.0.0.1:1"}
			- {port: {number: 80, protocol: HTTP, name: b}, bind: 10.0.0.2, defaultEndpoint: "127.0.0.1:2"}
			- {port: {number: 80, protocol: HTTP, name: c}, bind: "::ffff:10.0.0.1", defaultEndpoint: "127.0.0.1:3"}
			egress:
			- {port: {number: 80, protocol: HTTP, name: a}, bind: 127.0.0.1, hosts: ["*/a.test"]}
			- {port: {number: 80, protocol: HTTP, name: b}, bind: 127.0.0.2, hosts: ["*/b.test"]}
			- {port: {number: 80, protocol: HTTP, name: c}, hosts: ["*/c.test"]}`,
			refused: []string{
				"spec.ingress[2].bind: 10.0.0.1 with port 80 is set twice, also at spec.ingress[0].port.number",
				"spec.egress[2].port.number: 80 is set twice, also at spec.egress[0].port.number: give each of the listeners a bind of its own, or put their hosts into one",
				"spec.egress[2].port.number: 80 is set twice, also at spec.egress[1].port.number: give each of the listeners a bind of its own, or put their hosts into one",
			}},
		{name: "sockets", kind: schema.Sidecar, spec: `
			egress:
			- {port: {number: 0, protocol: HTTP}, hosts: ["*/*"]}
			- {port: {number: 0, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*/*"]}
			- {port: {number: 80, protocol: HTTP}, bind: unix:///a, hosts: ["*/*"]}
			- {port: {number: 0, protocol: HTTP}, bind: unix:///b, captureMode: IPTABLES, hosts: ["*/*"]}
			- {port: {number: 0, protocol: TCP}, bind: unix:///b, captureMode: NONE, hosts: ["*/*"]}
			- {port: {number: 0, protocol: TCP}, bind: unix:///b/c, hosts: ["*/*"]}
			- {port: {number: 0, protocol: TCP}, bind: unix://d, hosts: ["*/*"]}
			- {port: {number: 0, protocol: TCP}, bind: unix:///d/, hosts: ["*/*"]}
			- {port: {number: 0, protocol: TCP}, bind: "unix://@e", hosts: ["*/*"]}
			- {port: {number: 0}, bind: unix:///f, hosts: ["*/*"]}`,
			refused: []string{
				"spec.egress[0].port.number: must be a port from 1 to 65535, is 0, which is for a bind of unix:// and a path",
				"spec.egress[1].port.number: must be a port from 1 to 65535, is 0, which is for a bind of unix:// and a path",
				"spec.egress[2].port.number: must be 0 for a Unix domain socket, is 80",
				"spec.egress[3].captureMode: must be DEFAULT or NONE for a Unix domain socket, whose traffic nothing captures",
				`spec.egress[6].bind: must be unix:// and an absolute path, is "unix://d"`,
				`spec.egress[7].bind: must be a socket, "unix:///d/" is a directory`,
				`spec.egress[4].bind: "unix:///b" is set twice, also at spec.egress[3].bind`,
				"spec.egress[5].bind: is within spec.egress[3].bind, which is a socket and no directory",
				"spec.egress[5].bind: is within spec.egress[4].bind, which is a socket and no directory",
			},
			warned: []string{"spec.egress[9].port.protocol is missing: the port is plain TCP"}},
		{name: "what Istio accepts", kind: schema.Sidecar, spec: `
			ingress:
			- {port: {number: 80, protocol: TCP}, defaultEndpoint: ":8080", connectionPool: {http: {maxRetries: 1}}}
			egress:
			- {port: {number: 80, protocol: HTTP_PROXY}, bind: 127.0.0.1, hosts: ["shop/*", shop/a.b, "*/c.d", "~shop/e.f"]}
			- {bind: 127.0.0.1, hosts: ["*/*"]}`,
			warned: []string{
				"spec.ingress[0].connectionPool.http is for HTTP, and the protocol of the port is TCP: only tcp has an effect",
				`spec.egress[0].hosts[1] "shop/a.b" is covered by "shop/*" at [0]`,
			}},
		{name: "TLS of clients", kind: schema.Sidecar, spec: `
			ingress:
			- {port: {number: 80, protocol: HTTPS}, tls: {mode: ISTIO_MUTUAL, httpsRedirect: true, credentialName: a, subjectAltNames: [b]}}`,
			refused: []string{
				"spec.ingress[0].tls.mode: ISTIO_MUTUAL is not for sidecars: use SIMPLE, MUTUAL or OPTIONAL_MUTUAL",
				"spec.ingress[0].tls.httpsRedirect: is for gateways: leave it out",
				"spec.ingress[0].tls.credentialName: is for gateways: leave it out",
				"spec.ingress[0].tls.subjectAltNames: is for gateways: leave it out",
			}},
		{name: "an egress proxy", kind: schema.Sidecar, spec: `
			inboundConnectionPool: {http: {http2KeepAlive: {interval: 1s, timeout: 1s}}}
			outboundTrafficPolicy: {egressProxy: {host: "*.b", subset: A_B}}`,
			refused: []string{
				"spec.outboundTrafficPolicy.egressProxy: needs mode ALLOW_ANY: with REGISTRY_ONLY no traffic to unknown hosts passes",
				`spec.outboundTrafficPolicy.egressProxy.host: "*.b" is not a host name: a wildcard stands for whole labels in front, as in "*.example.com"`,
				"spec.outboundTrafficPolicy.egressProxy.port: is missing: name the number of a port of the service",
				`spec.outboundTrafficPolicy.egressProxy.subset: "a_b" is not valid: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character`,
			}},
	})
}
