package schema_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// istioRules returns the rules by which Istio accepts or refuses objects, by number. Those
// of delegates, of gateways, of patches and of security are tested elsewhere.
func istioRules() map[int]string {
	return map[int]string{
		2:  "the hosts of a VirtualService are names, patterns or addresses; sidecars have no routes for all hosts",
		3:  "they are distinct",
		4:  "it has routes",
		5:  "an HTTP route does one thing",
		6:  "a redirect goes with nothing that changes a request, and says where to",
		7:  "a rewrite says what to rewrite, the path in one way",
		8:  "some destination has a weight",
		9:  "mirrors stand in one place, and mirror 0 to 100 percent",
		10: "a fault delays or aborts, in a way that proxies know",
		11: "times are whole milliseconds, retries are counted from 0 and are for known conditions",
		12: "a policy for other origins names methods and headers, and whole seconds",
		13: "a match compares something, and the host of a request is set once",
		14: "a tls route names hosts of the VirtualService, and routes of streams say where to",
		15: "gateways are name, namespace/name or a full name; claims of a token are for gateways",
		16: "what is never used is told",
		17: "a destination is a host, with a port and a subset that can be",
		18: "a DestinationRule has a host, and subsets that differ",
		19: "a subset selects by labels that can be, and has a policy that is sound",
		20: "a traffic policy sets something",
		21: "a tunnel is by CONNECT or POST, and excludes PROXY protocol",
		22: "limits of connections are not negative, and a keep-alive of HTTP/2 has both times",
		23: "a hash has a key and one algorithm with a size that proxies can have",
		24: "localities are distributed or fail over, in shares of 100, from region to region",
		25: "an outlier is found by times and statuses that can be",
		26: "certificates come from files or from a credential",
		27: "a rule for some clients stays in its namespace",
		28: "exportTo has namespaces, or one of * and ~ alone",
		33: "a ServiceEntry has hosts, and not all there are",
		34: "its addresses are addresses, or ranges where nothing resolves names",
		35: "its ports differ in name and number, and have a known protocol",
		36: "its endpoints are selected or listed",
		37: "its endpoints fit how they are resolved",
		38: "its endpoints have ports of the service, a socket one alone",
		39: "TCP without an address is told",
		40: "a target port is a port",
		41: "a workload has an address or a network, and labels that can be",
		42: "a WorkloadGroup has a template, and a probe that probes",
		43: "its workloads get labels and annotations that can be",
		44: "a Sidecar says something, and its listeners have sockets of their own",
	}
}

// ruling is an object, by kind and spec, and what validation reports about which fields.
type ruling struct {
	rule    int
	kind    config.GroupVersionKind
	spec    string
	refused bool
	fields  []string
}

func accepts(rule int, kind config.GroupVersionKind, spec string) ruling {
	return ruling{rule, kind, spec, false, nil}
}

func warns(rule int, kind config.GroupVersionKind, spec string, fields ...string) ruling {
	return ruling{rule, kind, spec, false, fields}
}

func refuses(rule int, kind config.GroupVersionKind, spec string, fields ...string) ruling {
	return ruling{rule, kind, spec, true, fields}
}

// TestIstioRules compares validation with the rules of Istio. It accepts what Istio
// accepts, with a warning if that does not do what it seems to, and refuses what proxies
// would refuse.
func TestIstioRules(t *testing.T) {
	t.Parallel()
	rules := istioRules()
	sides := map[int][2]bool{}
	for _, r := range slices.Concat(virtualServiceRulings(), destinationRuleRulings(), serviceRulings(), sidecarRulings()) {
		var refused, warned []string
		c := decoded(t, r.kind, r.spec)
		warnings, err := schema.Pilot().Kind(r.kind).Validate(c)
		for _, f := range faults(t, err) {
			refused = append(refused, f.Field)
		}
		for _, w := range warnings {
			warned = append(warned, w.Field)
		}
		got, want := warned, r.fields
		if r.refused || len(refused) > 0 {
			got = refused
		}
		if !r.refused && len(refused) > 0 {
			want = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rule %d, %s: %s %s\n%v %q (-want +got):\n%s", r.rule, rules[r.rule], r.kind.Kind, r.spec, err, texts(warnings), diff)
		}
		side := sides[r.rule]
		if r.refused {
			side[1] = true
		} else {
			side[0] = true
		}
		sides[r.rule] = side
	}
	for rule := range rules {
		// Nothing is refused by rule 16 (what is never used) and rule 39 (TCP without an
		// address).
		if side := sides[rule]; !side[0] || !side[1] && rule != 16 && rule != 39 {
			t.Errorf("rule %d lacks a side: %v", rule, side)
		}
	}
}

func decoded(t *testing.T, kind config.GroupVersionKind, text string) *config.Config {
	t.Helper()
	documents, err := config.Decode("test.yaml", []byte(spec(kind, text)), schema.Pilot().Type)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return documents[0].Config
}

// httpRoute returns a VirtualService with one HTTP route to a destination, and more fields.
func httpRoute(fields string) string {
	return "{hosts: [a.example], http: [{route: [{destination: {host: a.example}}], " + fields + "}]}"
}

// action is a VirtualService with one HTTP route.
func action(fields string) string { return "{hosts: [a.example], http: [{" + fields + "}]}" }

// anyRoute is where routes lead.
const anyRoute = "route: [{destination: {host: a.example}}]"

func virtualServiceRulings() []ruling {
	vs := schema.VirtualService
	return []ruling{
		accepts(2, vs, `{hosts: [a.example, "*.b.example", 10.0.0.1], http: [{`+anyRoute+`}]}`),
		accepts(2, vs, `{hosts: ["*"], gateways: [edge/gw], http: [{`+anyRoute+`}]}`),
		refuses(2, vs, `{hosts: ["*"], http: [{`+anyRoute+`}]}`, "spec.hosts[0]"),
		refuses(2, vs, `{hosts: ["*"], gateways: [edge/gw, mesh], http: [{`+anyRoute+`}]}`, "spec.hosts[0]"),
		refuses(2, vs, `{hosts: ["foo*.x", a_b.example], http: [{`+anyRoute+`}]}`, "spec.hosts[0]", "spec.hosts[1]"),
		warns(2, vs, `{hosts: [a], http: [{`+anyRoute+`}]}`, "spec.hosts[0]"),
		accepts(3, vs, `{hosts: [a.example, b.example], http: [{`+anyRoute+`}]}`),
		refuses(3, vs, `{hosts: [a.example, a.example], http: [{`+anyRoute+`}]}`, "spec.hosts[1]"),
		refuses(3, vs, `{hosts: ["*.example", a.example], http: [{`+anyRoute+`}]}`, "spec.hosts[1]"),
		accepts(4, vs, `{hosts: [a.example], tcp: [{`+anyRoute+`}]}`),
		accepts(4, vs, `{hosts: [a.example], tls: [{match: [{sniHosts: [a.example]}], `+anyRoute+`}]}`),
		refuses(4, vs, `{hosts: [a.example]}`, "spec.http"),

		accepts(5, vs, httpRoute("")),
		accepts(5, vs, action("redirect: {uri: /a}")),
		accepts(5, vs, action("directResponse: {status: 200}")),
		refuses(5, vs, action("name: a"), "spec.http[0]"),
		refuses(5, vs, httpRoute("redirect: {uri: /a}"), "spec.http[0]"),
		refuses(5, vs, httpRoute("directResponse: {status: 200}"), "spec.http[0]"),
		refuses(5, vs, action("redirect: {uri: /a}, directResponse: {status: 200}"), "spec.http[0]"),
		refuses(5, vs, action("directResponse: {status: 600}"), "spec.http[0].directResponse.status"),
		accepts(6, vs, action("redirect: {uri: /a, authority: b.example, scheme: https, port: 8443, redirectCode: 303}")),
		accepts(6, vs, action("match: [{uri: {prefix: /a}}], redirect: {prefixRewrite: /b}")),
		warns(6, vs, action("redirect: {uri: /a, port: 0}"), "spec.http[0].redirect.port"),
		refuses(6, vs, action("redirect: {}"), "spec.http[0].redirect"),
		refuses(6, vs, action("redirect: {uri: /a}, fault: {delay: {fixedDelay: 1s, percentage: {value: 1}}}"), "spec.http[0].fault"),
		refuses(6, vs, action("redirect: {uri: /a}, rewrite: {uri: /b}"), "spec.http[0].rewrite"),
		refuses(6, vs, action("match: [{uri: {exact: /a}}], redirect: {prefixRewrite: /b}"), "spec.http[0].redirect.prefixRewrite"),
		refuses(6, vs, action("match: [{uri: {prefix: /a}}], redirect: {prefixRewrite: /b, uri: /c}"), "spec.http[0].redirect.prefixRewrite"),
		refuses(6, vs, action("redirect: {uri: /a, redirectCode: 200}"), "spec.http[0].redirect.redirectCode"),
		refuses(6, vs, action("redirect: {uri: /a, redirectCode: 305}"), "spec.http[0].redirect.redirectCode"), // proxies have none
		refuses(6, vs, action("redirect: {scheme: ftp}"), "spec.http[0].redirect.scheme"),
		refuses(6, vs, action("redirect: {uri: /a, port: 65536}"), "spec.http[0].redirect.port"),
		accepts(7, vs, httpRoute("rewrite: {uri: /a, authority: b.example}")),
		accepts(7, vs, httpRoute(`rewrite: {uriRegexRewrite: {match: "^/a(.*)", rewrite: '/b\1'}}`)),
		refuses(7, vs, httpRoute("rewrite: {}"), "spec.http[0].rewrite"),
		refuses(7, vs, httpRoute("rewrite: {uri: /a, uriRegexRewrite: {match: a, rewrite: b}}"), "spec.http[0].rewrite.uriRegexRewrite"),
		refuses(7, vs, httpRoute("rewrite: {uriRegexRewrite: {match: a}}"), "spec.http[0].rewrite.uriRegexRewrite.rewrite"),
		refuses(7, vs, httpRoute("rewrite: {uriRegexRewrite: {match: '(', rewrite: a}}"), "spec.http[0].rewrite.uriRegexRewrite.match"),
		accepts(8, vs, action("route: [{destination: {host: a.example}, weight: 0}]")),
		accepts(8, vs, action("route: [{destination: {host: a.example}, weight: 0}, {destination: {host: b.example}, weight: 1}]")),
		refuses(8, vs, action("route: [{destination: {host: a.example}}, {destination: {host: b.example}}]"), "spec.http[0].route"),
		refuses(8, vs, action("route: [{destination: {host: a.example}, weight: -1}]"), "spec.http[0].route[0].weight"),
		accepts(9, vs, httpRoute("mirror: {host: b.example}, mirrorPercentage: {value: 0}")),
		accepts(9, vs, httpRoute("mirrors: [{destination: {host: b.example}, percentage: {value: 100}}]")),
		refuses(9, vs, httpRoute("mirror: {host: b.example}, mirrors: [{destination: {host: b.example}}]"), "spec.http[0].mirror"),
		refuses(9, vs, httpRoute("mirror: {host: b.example}, mirrorPercentage: {value: 100.1}"), "spec.http[0].mirrorPercentage.value"),
		refuses(9, vs, httpRoute("mirrors: [{percentage: {value: -1}}]"), "spec.http[0].mirrors[0].destination", "spec.http[0].mirrors[0].percentage.value"),

		accepts(10, vs, httpRoute("fault: {delay: {fixedDelay: 1s, percentage: {value: 0.0001}}, abort: {httpStatus: 200, percentage: {value: 0}}}")),
		accepts(10, vs, httpRoute("fault: {abort: {grpcStatus: NOT_FOUND, percentage: {value: 100}}}")),
		warns(10, vs, httpRoute("fault: {abort: {percentage: {value: 1}}}"), "spec.http[0].fault.abort"),
		refuses(10, vs, httpRoute("fault: {}"), "spec.http[0].fault"),
		refuses(10, vs, httpRoute("fault: {delay: {exponentialDelay: 1s, percentage: {value: 1}}}"), "spec.http[0].fault.delay.exponentialDelay"),
		refuses(10, vs, httpRoute("fault: {abort: {http2Error: x, percentage: {value: 1}}}"), "spec.http[0].fault.abort.http2Error"),
		refuses(10, vs, httpRoute("fault: {abort: {httpStatus: 199, percentage: {value: 1}}}"), "spec.http[0].fault.abort.httpStatus"),
		refuses(10, vs, httpRoute("fault: {abort: {httpStatus: 500, percentage: {value: 0.00001}}}"), "spec.http[0].fault.abort.percentage.value"),
		warns(11, vs, httpRoute("timeout: 1s, retries: {attempts: 1, perTryTimeout: 1.5s}"), "spec.http[0].retries.perTryTimeout"),
		accepts(11, vs, httpRoute("timeout: 2s, retries: {attempts: 1, perTryTimeout: 1.5s, retryOn: '503,5xx,cancelled', backoff: 1ms}")),
		accepts(11, vs, httpRoute("retries: {attempts: 0}")),
		warns(11, vs, httpRoute("retries: {attempts: 0, backoff: 1s}"), "spec.http[0].retries.attempts"),
		warns(11, vs, httpRoute("retries: {attempts: 1, backoff: 0.0005s}"), "spec.http[0].retries.backoff"),
		refuses(11, vs, httpRoute("timeout: 0s"), "spec.http[0].timeout"),
		refuses(11, vs, httpRoute("timeout: 1.0005s"), "spec.http[0].timeout"),
		refuses(11, vs, httpRoute("retries: {attempts: -1}"), "spec.http[0].retries.attempts"),
		refuses(11, vs, httpRoute("retries: {retryOn: 5xx}"), "spec.http[0].retries.attempts"),
		refuses(11, vs, httpRoute("retries: {attempts: 1, backoff: 0s}"), "spec.http[0].retries.backoff"), // proxies refuse it
		refuses(11, vs, httpRoute("retries: {attempts: 1, retryOn: '5xx,'}"), "spec.http[0].retries.retryOn"),
		refuses(11, vs, httpRoute("retries: {attempts: 1, retryOn: sometimes}"), "spec.http[0].retries.retryOn"),
		accepts(12, vs, httpRoute("corsPolicy: {allowOrigins: [{regex: 'a.*'}], allowMethods: [GET, '*'], allowHeaders: [x-a], maxAge: 60s}")),
		accepts(12, vs, httpRoute("corsPolicy: {allowOrigins: [{exact: 'https://a.example:8443'}, {exact: '*'}, {exact: 'null'}, {prefix: 'https://a.'}, {prefix: http}]}")),
		warns(12, vs, httpRoute("corsPolicy: {allowOrigins: [{exact: a.example}, {prefix: a.example}, {exact: 'https://a.example/'}]}"),
			"spec.http[0].corsPolicy.allowOrigins[0].exact", "spec.http[0].corsPolicy.allowOrigins[1].prefix", "spec.http[0].corsPolicy.allowOrigins[2].exact"),
		warns(12, vs, httpRoute("corsPolicy: {allowOrigin: ['*', a.example]}"), "spec.http[0].corsPolicy.allowOrigin[1]"),
		refuses(12, vs, httpRoute("corsPolicy: {allowOrigins: [{regex: '('}, {}], allowMethods: [FETCH], maxAge: 0.5s}"),
			"spec.http[0].corsPolicy.allowOrigins[0].regex", "spec.http[0].corsPolicy.allowOrigins[1]", "spec.http[0].corsPolicy.allowMethods[0]", "spec.http[0].corsPolicy.maxAge"),

		accepts(13, vs, httpRoute("match: [{uri: {regex: '/a.*'}, headers: {x-a: {}, x-b: {prefix: b}}, withoutHeaders: {x-c: {regex: '*'}}, sourceNamespace: shop, port: 80}]")),
		warns(13, vs, httpRoute("match: [{uri: {prefix: ''}}]"), "spec.http[0].match[0].uri.prefix"),
		warns(13, vs, httpRoute("match: [{uri: {}}]"), "spec.http[0].match[0].uri"),
		warns(13, vs, httpRoute("match: [{sourceNamespace: Shop}]"), "spec.http[0].match[0].sourceNamespace"),
		accepts(13, vs, httpRoute("headers: {request: {set: {host: b.example}}}")),
		refuses(13, vs, httpRoute("match: [{uri: {regex: ''}, authority: {prefix: ''}, headers: {x: {regex: '('}}}]"),
			"spec.http[0].match[0].uri.regex", "spec.http[0].match[0].authority.prefix", "spec.http[0].match[0].headers[x].regex"),
		refuses(13, vs, httpRoute("match: [{headers: {'a b': {exact: c}}, queryParams: {'': {exact: a}}}]"), "spec.http[0].match[0].headers[a b]", "spec.http[0].match[0].queryParams[]"),
		refuses(13, vs, httpRoute("match: [{sourceNamespace: a.b}]"), "spec.http[0].match[0].sourceNamespace"),
		refuses(13, vs, httpRoute("rewrite: {authority: b.example}, headers: {request: {set: {HOST: c.example}}}"), "spec.http[0].headers.request.set[HOST]"),
		refuses(13, vs, httpRoute("headers: {request: {set: {host: b.example}, add: {':authority': c.example}}}"), "spec.http[0].headers.request.add[:authority]"),
		refuses(13, vs, httpRoute("headers: {request: {remove: [Host]}}"), "spec.http[0].headers.request.remove[0]"),
		refuses(13, vs, httpRoute("headers: {request: {set: {x-a: '100%'}}}"), "spec.http[0].headers.request.set[x-a]"),

		accepts(14, vs, `{hosts: ["*.example"], tls: [{match: [{sniHosts: [a.example], destinationSubnets: [10.0.0.0/8], port: 443}], `+anyRoute+`}]}`),
		accepts(14, vs, `{hosts: [a.example], tcp: [{match: [{destinationSubnets: [10.0.0.1, "fd00::/8"]}], `+anyRoute+`}]}`),
		warns(14, vs, `{hosts: [a.example], tls: [{match: [{sniHosts: [10.0.0.1]}], `+anyRoute+`}]}`, "spec.tls[0].match[0].sniHosts[0]"),
		warns(14, vs, `{hosts: [a.example], tcp: [{match: [{sourceNamespace: A_}], `+anyRoute+`}]}`, "spec.tcp[0].match[0].sourceNamespace"),
		refuses(14, vs, `{hosts: [a.example], tls: [{match: [{}], `+anyRoute+`}, {`+anyRoute+`}]}`, "spec.tls[0].match[0].sniHosts", "spec.tls[1].match"),
		refuses(14, vs, `{hosts: [a.example], tls: [{match: [{sniHosts: [b.example]}], `+anyRoute+`}]}`, "spec.tls[0].match[0].sniHosts[0]"),
		refuses(14, vs, `{hosts: [a.example], tls: [{match: [{sniHosts: [a.example]}]}], tcp: [{}]}`, "spec.tcp[0].route", "spec.tls[0].route"),
		refuses(14, vs, `{hosts: [a.example], tcp: [{match: [{destinationSubnets: [10.0.0.0/33]}], `+anyRoute+`}]}`, "spec.tcp[0].match[0].destinationSubnets[0]"),
		accepts(15, vs, `{hosts: [a.example], gateways: [gw, edge/gw, gw.edge.svc.cluster.local, mesh], http: [{`+anyRoute+`}]}`),
		warns(15, vs, `{hosts: [a.example], gateways: [Edge/gw], http: [{`+anyRoute+`}]}`, "spec.gateways[0]"),
		refuses(15, vs, `{hosts: [a.example], gateways: [gw], http: [{match: [{headers: {"@request.auth.claims-sub": {exact: a}}}], `+anyRoute+`}]}`, "spec.http[0].match[0].headers[@request.auth.claims-sub]"),
		refuses(15, vs, httpRoute(`match: [{headers: {"@request.auth.claims.sub": {exact: a}}}]`), "spec.http[0].match[0].headers[@request.auth.claims.sub]"),
		refuses(15, vs, `{hosts: [a.example], gateways: [a/b/c, /gw, a/, ""], http: [{`+anyRoute+`}]}`, "spec.gateways[0]", "spec.gateways[1]", "spec.gateways[2]", "spec.gateways[3]"),
		warns(16, vs, `{hosts: [a.example], http: [{`+anyRoute+`}, {`+anyRoute+`}]}`, "spec.http[1]"),
		warns(16, vs, `{hosts: [a.example], http: [{match: [{uri: {prefix: /a}}], `+anyRoute+`}, {match: [{uri: {prefix: /a}}, {uri: {prefix: /b}}], `+anyRoute+`}]}`, "spec.http[1].match[0]"),
		warns(16, vs, `{hosts: [a.example], tcp: [{match: [{port: 1}], `+anyRoute+`}, {match: [{port: 2}, {port: 1}], `+anyRoute+`}]}`, "spec.tcp[1].match[1]"),
		accepts(17, vs, action("route: [{destination: {host: '*.a.example', subset: V1, port: {number: 65535}}}]")),
		warns(17, vs, action("route: [{destination: {host: a}}]"), "spec.http[0].route[0].destination.host"),
		refuses(17, vs, action("route: [{destination: {host: '*'}}]"), "spec.http[0].route[0].destination.host"),
		refuses(17, vs, action("route: [{}]"), "spec.http[0].route[0].destination.host"),
		refuses(17, vs, action("route: [{destination: {host: a.example, subset: a.b, port: {number: 0}}}]"), "spec.http[0].route[0].destination.subset", "spec.http[0].route[0].destination.port.number"),
	}
}

// policy is a DestinationRule with a traffic policy.
func policy(fields string) string { return "{host: a.example, trafficPolicy: {" + fields + "}}" }

func destinationRuleRulings() []ruling {
	dr := schema.DestinationRule
	const at, balancer, locality = "spec.trafficPolicy.", "spec.trafficPolicy.loadBalancer.", "spec.trafficPolicy.loadBalancer.localityLbSetting."
	spread := func(fields string) string {
		return policy("outlierDetection: {}, loadBalancer: {localityLbSetting: {" + fields + "}}")
	}
	pool := func(fields string) string { return policy("connectionPool: {" + fields + "}") }
	hash := func(fields string) string { return policy("loadBalancer: {consistentHash: {" + fields + "}}") }
	tls := func(fields string) string { return policy("tls: {" + fields + "}") }
	return []ruling{
		accepts(18, dr, `{host: "*.a.example", subsets: [{name: V1, labels: {a: b}}, {name: v2, labels: {a: c}}]}`),
		refuses(18, dr, `{}`, "spec.host"),
		refuses(18, dr, `{host: "*.shop.svc"}`, "spec.host"),
		refuses(18, dr, `{host: a.example, subsets: [{name: v1, labels: {a: b}}, {name: v1, labels: {a: b}}]}`, "spec.subsets[1].name"),
		refuses(18, dr, `{host: a.example, subsets: [{labels: {a: b}}, {name: a.b, labels: {a: b}}]}`, "spec.subsets[0].name", "spec.subsets[1].name"),
		accepts(19, dr, `{host: a.example, subsets: [{name: v1, trafficPolicy: {loadBalancer: {simple: RANDOM}}}]}`),
		warns(19, dr, `{host: a.example, subsets: [{name: v1}]}`, "spec.subsets[0]"),
		refuses(19, dr, `{host: a.example, subsets: [{name: v1, labels: {a: "*"}}]}`, "spec.subsets[0].labels[a]"),
		refuses(19, dr, `{host: a.example, subsets: [{name: v1, trafficPolicy: {connectionPool: {}}}]}`, "spec.subsets[0].trafficPolicy.connectionPool"),
		accepts(20, dr, policy("retryBudget: {percent: 20}")),
		warns(20, dr, policy("portLevelSettings: [{port: {number: 0}, loadBalancer: {}}, {port: {number: 65536}, loadBalancer: {}}]"),
			at+"portLevelSettings[0].port.number", at+"portLevelSettings[1].port.number"),
		warns(20, dr, policy("portLevelSettings: [{port: {number: 80}, loadBalancer: {}}, {port: {number: 80}, loadBalancer: {}}]"), at+"portLevelSettings[1].port.number"),
		refuses(20, dr, policy(""), "spec.trafficPolicy"),
		refuses(20, dr, policy("portLevelSettings: [{loadBalancer: {}}]"), at+"portLevelSettings[0].port"),
		accepts(21, dr, policy("tunnel: {protocol: POST, targetHost: b.example, targetPort: 80}")),
		accepts(21, dr, policy("proxyProtocol: {version: V2}")),
		refuses(21, dr, policy("proxyProtocol: {}, tunnel: {targetHost: 10.0.0.1, targetPort: 80}"), at+"proxyProtocol"),
		refuses(21, dr, policy("tunnel: {protocol: PUT, targetHost: a_b, targetPort: 0}"), at+"tunnel.protocol", at+"tunnel.targetHost", at+"tunnel.targetPort"),
		accepts(22, dr, pool("tcp: {maxConnections: 0, connectTimeout: 1ms, idleTimeout: 0s}, http: {maxRetries: 0, http2KeepAlive: {interval: 1s, timeout: 1s}}")),
		accepts(22, dr, pool("http: {useClientProtocol: true, h2UpgradePolicy: DO_NOT_UPGRADE}")),
		refuses(22, dr, pool(""), at+"connectionPool"),
		refuses(22, dr, pool("tcp: {maxConnections: -1, connectTimeout: 0s, tcpKeepalive: {time: 0.5ms}}"),
			at+"connectionPool.tcp.maxConnections", at+"connectionPool.tcp.connectTimeout", at+"connectionPool.tcp.tcpKeepalive.time"),
		refuses(22, dr, pool("http: {http2MaxRequests: -1, http2KeepAlive: {interval: 1s}}"), at+"connectionPool.http.http2MaxRequests", at+"connectionPool.http.http2KeepAlive.timeout"),
		refuses(22, dr, pool("http: {useClientProtocol: true, h2UpgradePolicy: UPGRADE}"), at+"connectionPool.http.useClientProtocol"),

		accepts(23, dr, hash("httpHeaderName: x-a, maglev: {tableSize: 5000011}")),
		accepts(23, dr, hash("httpCookie: {name: a, ttl: 0s}, ringHash: {minimumRingSize: 1024}")),
		accepts(23, dr, hash("useSourceIp: true, minimumRingSize: 2048")),
		warns(23, dr, hash("minimumRingSize: 2048"), balancer+"consistentHash"),
		warns(23, dr, hash("httpHeaderName: a b"), balancer+"consistentHash.httpHeaderName"),
		refuses(23, dr, hash("httpHeaderName: ''"), balancer+"consistentHash.httpHeaderName"), // proxies refuse it
		refuses(23, dr, hash("httpHeaderName: x-a, maglev: {tableSize: 1000}"), balancer+"consistentHash.maglev.tableSize"),
		refuses(23, dr, hash("httpHeaderName: x-a, maglev: {tableSize: 5000081}"), balancer+"consistentHash.maglev.tableSize"),
		refuses(23, dr, hash("httpHeaderName: x-a, minimumRingSize: 1, ringHash: {}"), balancer+"consistentHash.minimumRingSize"),
		refuses(23, dr, hash("httpCookie: {path: /}"), balancer+"consistentHash.httpCookie.name"),

		accepts(24, dr, spread("distribute: [{from: eu/a/*, to: {eu/a: 80, us: 20}}, {from: '*', to: {'*': 100}}]")),
		accepts(24, dr, spread("failover: [{from: eu, to: us}], failoverPriority: [rack, row=2]")),
		warns(24, dr, policy("loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}"), balancer+"localityLbSetting"),
		warns(24, dr, policy("loadBalancer: {localityLbSetting: {enabled: true}}"), balancer+"localityLbSetting"),
		accepts(24, dr, policy("loadBalancer: {localityLbSetting: {enabled: false, failover: [{from: eu, to: us}]}}")),
		warns(24, dr, policy("outlierDetection: {}, portLevelSettings: [{port: {number: 80}, loadBalancer: {localityLbSetting: {failoverPriority: [rack]}}}]"), at+"portLevelSettings[0].loadBalancer.localityLbSetting"),
		accepts(24, dr, `{host: a.example, trafficPolicy: {outlierDetection: {}}, subsets: [{name: v1, labels: {a: b}, trafficPolicy: {loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}}}]}`),
		accepts(24, dr, `{host: a.example, trafficPolicy: {loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}}, subsets: [{name: v1, labels: {a: b}, trafficPolicy: {outlierDetection: {}}}]}`),
		warns(24, dr, `{host: a.example, trafficPolicy: {loadBalancer: {simple: RANDOM}}, subsets: [{name: v1, labels: {a: b}, trafficPolicy: {loadBalancer: {localityLbSetting: {failover: [{from: eu, to: us}]}}}}]}`,
			"spec.subsets[0].trafficPolicy.loadBalancer.localityLbSetting"),
		warns(24, dr, spread("distribute: [{from: eu*, to: {eu: 100}}]"), locality+"distribute[0].from"),
		warns(24, dr, spread("failover: [{from: '', to: us}], failoverPriority: ['']"), locality+"failover[0].from", locality+"failoverPriority[0]"),
		refuses(24, dr, spread("distribute: [{from: eu, to: {eu: 100}}], failover: [{from: eu, to: us}]"), locality+"failover"),
		refuses(24, dr, spread("failover: [{from: eu, to: us}], failoverPriority: [topology.kubernetes.io/region]"), locality+"failoverPriority[0]"),
		refuses(24, dr, spread("distribute: [{from: eu, to: {eu: 50}}]"), locality+"distribute[0].to"),
		refuses(24, dr, spread("distribute: [{from: eu, to: {eu: 100, us: 0}}]"), locality+"distribute[0].to[us]"),
		refuses(24, dr, spread("distribute: [{from: eu, to: {eu: 100}}, {from: eu/a, to: {eu: 100}}]"), locality+"distribute[1].from"),
		refuses(24, dr, spread("distribute: [{from: eu//a, to: {eu: 100}}, {from: '*/a', to: {eu: 100}}]"), locality+"distribute[0].from", locality+"distribute[1].from"),
		refuses(24, dr, spread("failover: [{from: eu, to: eu}, {from: eu/a, to: '*'}]"), locality+"failover[0].to", locality+"failover[1].from", locality+"failover[1].to"),

		accepts(24, dr, policy("loadBalancer: {zoneAwareLbSetting: {enabled: true, failover: [{from: eu, to: us}], failoverPriority: [rack], minClusterSize: 3}}")),
		refuses(24, dr, policy("loadBalancer: {zoneAwareLbSetting: {}, localityLbSetting: {}}"), balancer+"zoneAwareLbSetting"),
		refuses(24, dr, policy("loadBalancer: {zoneAwareLbSetting: {failover: [{from: eu, to: eu}], failoverPriority: [topology.kubernetes.io/zone], minClusterSize: 0}}"),
			balancer+"zoneAwareLbSetting.failover[0].to", balancer+"zoneAwareLbSetting.failoverPriority[0]", balancer+"zoneAwareLbSetting.minClusterSize"),

		accepts(25, dr, policy("outlierDetection: {interval: 1ms, baseEjectionTime: 1s, maxEjectionPercent: 100, minHealthPercent: 0}")),
		accepts(25, dr, policy("outlierDetection: {splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 1}")),
		refuses(25, dr, policy("outlierDetection: {consecutiveLocalOriginFailures: 1}"), at+"outlierDetection.consecutiveLocalOriginFailures"),
		refuses(25, dr, policy("outlierDetection: {interval: 0s, baseEjectionTime: 0.0001s, maxEjectionPercent: 101, minHealthPercent: -1}"),
			at+"outlierDetection.interval", at+"outlierDetection.baseEjectionTime", at+"outlierDetection.maxEjectionPercent", at+"outlierDetection.minHealthPercent"),

		accepts(26, dr, tls("mode: DISABLE")),
		accepts(26, dr, tls("mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /ca")),
		accepts(26, dr, tls("mode: MUTUAL, credentialName: c, insecureSkipVerify: true")),
		accepts(26, dr, tls("mode: SIMPLE, caCertificates: /ca, subjectAltNames: [a]")),
		warns(26, dr, tls("mode: ISTIO_MUTUAL, privateKey: /k"), at+"tls.privateKey"),
		warns(26, dr, tls("mode: SIMPLE, credentialName: 'configmap://ca'"), at+"tls.credentialName"),
		refuses(26, dr, tls("mode: SIMPLE, sni: "+strings.Repeat("a", 256)), at+"tls.sni"),
		refuses(26, dr, tls("mode: MUTUAL"), at+"tls.clientCertificate", at+"tls.privateKey"),
		refuses(26, dr, tls("mode: SIMPLE, credentialName: c, caCertificates: /ca, caCrl: /crl"), at+"tls.caCertificates", at+"tls.caCrl"),
		refuses(26, dr, tls("mode: SIMPLE, caCertificates: /a~b, caCrl: '~'"), at+"tls.caCertificates", at+"tls.caCrl"),
		refuses(26, dr, tls("mode: SIMPLE, insecureSkipVerify: true, caCertificates: /ca"), at+"tls.caCertificates"),
		refuses(26, dr, tls("mode: SIMPLE, insecureSkipVerify: true, credentialName: c, subjectAltNames: [a]"), at+"tls.subjectAltNames", at+"tls.credentialName"),

		accepts(27, dr, `{host: a.example, workloadSelector: {matchLabels: {app: a}}, exportTo: [shop]}`),
		warns(27, dr, `{host: a.example, workloadSelector: {}}`, "spec.workloadSelector"),
		warns(27, dr, `{host: a.example, workloadSelector: {matchLabels: {app: "a b"}}}`, "spec.workloadSelector.matchLabels[app]"),
		refuses(27, dr, `{host: a.example, workloadSelector: {matchLabels: {app: a}}, exportTo: [edge]}`, "spec.exportTo"),
		refuses(27, dr, `{host: a.example, workloadSelector: {matchLabels: {app: a}}, exportTo: [".", edge]}`, "spec.exportTo"),
		refuses(27, dr, `{host: a.example, workloadSelector: {matchLabels: {"": a, app: "*"}}}`, "spec.workloadSelector.matchLabels[]", "spec.workloadSelector.matchLabels[app]"),
		accepts(28, dr, `{host: a.example, exportTo: [".", edge]}`),
		accepts(28, dr, `{host: a.example, exportTo: ["*"]}`),
		warns(28, dr, `{host: a.example, exportTo: [Edge]}`, "spec.exportTo[0]"),
		refuses(28, dr, `{host: a.example, exportTo: ["*", edge]}`, "spec.exportTo[0]"),
		refuses(28, dr, `{host: a.example, exportTo: [edge, "~"]}`, "spec.exportTo[1]"),
		refuses(28, dr, `{host: a.example, exportTo: [edge, edge, a_b]}`, "spec.exportTo[2]", "spec.exportTo[1]"),
	}
}

// entry is a ServiceEntry for HTTP with more fields.
func entry(fields string) string {
	return "{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], " + fields + "}"
}

func serviceRulings() []ruling {
	se, we, wg := schema.ServiceEntry, schema.WorkloadEntry, schema.WorkloadGroup
	group := func(fields string) string { return "{template: {serviceAccount: a}, " + fields + "}" }
	return []ruling{
		accepts(33, se, `{hosts: [a.example, "*.b.example"], ports: [{number: 80, name: http, protocol: HTTP}]}`),
		warns(33, se, `{hosts: [a.example, a.example], ports: [{number: 80, name: http, protocol: HTTP}]}`, "spec.hosts[1]"),
		refuses(33, se, `{ports: [{number: 80, name: http, protocol: HTTP}]}`, "spec.hosts"),
		refuses(33, se, `{hosts: ["*", "foo*", a_b.example], ports: [{number: 80, name: http, protocol: HTTP}]}`, "spec.hosts[0]", "spec.hosts[1]", "spec.hosts[2]"),
		accepts(34, se, entry("addresses: [10.0.0.1, 'fd00::1', 10.1.0.0/16]")),
		accepts(34, se, entry("addresses: [10.1.0.0/16], resolution: STATIC, endpoints: [{address: 10.0.0.1}]")),
		refuses(34, se, entry("addresses: [10.0.0.256, 1.2.3.4/99]"), "spec.addresses[0]", "spec.addresses[1]"),
		refuses(34, se, entry("addresses: [10.1.0.0/16], resolution: DNS"), "spec.addresses[0]"),
		accepts(35, se, `{hosts: [a.example], ports: [{number: 80, name: Http, protocol: http}, {number: 81, name: grpc, protocol: GRPC-Web}]}`),
		warns(35, se, `{hosts: [a.example]}`, "spec.ports"),
		warns(35, se, `{hosts: [a.example], ports: [{number: 80, name: a}, {number: 53, name: dns, protocol: UDP}]}`, "spec.ports[0].protocol", "spec.ports[1].protocol"),
		refuses(35, se, `{hosts: [a.example], ports: [{number: 80, name: a, protocol: HTTP}, {number: 80, name: a, protocol: HTTP}]}`, "spec.ports[1].name", "spec.ports[1].number"),
		refuses(35, se, `{hosts: [a.example], ports: [{number: 0, name: a_b, protocol: SMTP}, {number: 65536, protocol: HTTP}]}`,
			"spec.ports[0].name", "spec.ports[0].number", "spec.ports[0].protocol", "spec.ports[1].name", "spec.ports[1].number"),
		accepts(36, se, entry("resolution: STATIC, workloadSelector: {labels: {app: a}}")),
		warns(36, se, entry("resolution: STATIC, workloadSelector: {}"), "spec.workloadSelector"),
		warns(36, se, entry("resolution: STATIC, workloadSelector: {labels: {app: a b}}"), "spec.workloadSelector.labels[app]"),
		refuses(36, se, entry("resolution: STATIC, workloadSelector: {}, endpoints: [{address: 10.0.0.1}]"), "spec.workloadSelector"),
		refuses(36, se, entry("resolution: STATIC, workloadSelector: {labels: {'': a, app: '*'}}"), "spec.workloadSelector.labels[]", "spec.workloadSelector.labels[app]"),
		accepts(37, se, entry("resolution: NONE")),
		accepts(37, se, entry("resolution: STATIC, endpoints: [{address: 10.0.0.1}, {address: 'unix:///a'}]")),
		accepts(37, se, entry("resolution: DNS, endpoints: [{address: b.example}, {address: 10.0.0.1}]")),
		accepts(37, se, entry("resolution: DNS_ROUND_ROBIN, endpoints: [{address: b.example}]")),
		accepts(37, se, entry("resolution: NONE, workloadSelector: {labels: {app: a}}")),
		warns(37, se, entry("resolution: STATIC"), "spec.endpoints"),
		refuses(37, se, entry("resolution: NONE, endpoints: [{address: 10.0.0.1}]"), "spec.endpoints"),
		refuses(37, se, entry("resolution: STATIC, endpoints: [{address: b.example}, {}]"), "spec.endpoints[0].address", "spec.endpoints[1].address"),
		refuses(37, se, entry("resolution: DNS, endpoints: [{address: 'unix:///a'}]"), "spec.endpoints[0].address"),
		refuses(37, se, `{hosts: ["*.a.example"], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}`, "spec.hosts[0]"),
		refuses(37, se, entry("resolution: DNS_ROUND_ROBIN, endpoints: [{address: b.example}, {address: c.example}]"), "spec.endpoints"),
		accepts(38, se, entry("resolution: STATIC, endpoints: [{address: 10.0.0.1, ports: {http: 8080}}]")),
		refuses(38, se, entry("resolution: STATIC, endpoints: [{address: 10.0.0.1, ports: {grpc: 8080}}]"), "spec.endpoints[0].ports[grpc]"),
		refuses(38, se, `{hosts: [a.example], ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: b, protocol: HTTP}], resolution: STATIC, endpoints: [{address: "unix:///a"}]}`, "spec.endpoints[0].address"),
		accepts(39, se, `{hosts: [a.example], addresses: [10.0.0.1], ports: [{number: 1, name: a, protocol: TCP}]}`),
		warns(39, se, `{hosts: [a.example], ports: [{number: 1, name: a, protocol: TCP}]}`, "spec.ports[0].protocol"),
		accepts(40, se, `{hosts: [a.example], ports: [{number: 80, name: a, protocol: HTTP, targetPort: 8080}]}`),
		refuses(40, se, `{hosts: [a.example], ports: [{number: 80, name: a, protocol: HTTP, targetPort: 65536}]}`, "spec.ports[0].targetPort"),

		accepts(41, we, `{address: 10.0.0.1, ports: {HTTP: 80}, labels: {app: a}, locality: r/z/s, weight: 2, serviceAccount: a}`),
		accepts(41, we, `{address: a.example}`),
		accepts(41, we, `{address: "unix://@a"}`),
		warns(41, we, `{network: net}`, "spec.address"),
		warns(41, we, `{address: 10.0.0.1, locality: r/z/s/t}`, "spec.locality"),
		refuses(41, we, `{}`, "spec.address"),
		refuses(41, we, `{address: a_b.example}`, "spec.address"),
		refuses(41, we, `{address: "unix://a"}`, "spec.address"),
		refuses(41, we, `{address: "unix:///a/"}`, "spec.address"),
		refuses(41, we, `{address: "unix:///a", ports: {http: 80}}`, "spec.ports"),
		refuses(41, we, `{address: 10.0.0.1, ports: {"@": 80, http: 65536}, labels: {"a b": c}}`, "spec.ports[@]", "spec.ports[http]", "spec.labels[a b]"),
		accepts(42, wg, `{template: {}}`),
		accepts(42, wg, group("probe: {httpGet: {port: 80, scheme: HTTPS, httpHeaders: [{name: x-a, value: b}]}}")),
		accepts(42, wg, group("probe: {tcpSocket: {port: 80}}")),
		accepts(42, wg, group("probe: {exec: {command: [a]}}")),
		refuses(42, wg, `{}`, "spec.template"),
		refuses(42, wg, group("probe: {}"), "spec.probe"),
		refuses(42, wg, group("probe: {httpGet: {port: 0, scheme: FTP, httpHeaders: [{name: '**'}, {name: ''}]}}"),
			"spec.probe.httpGet.port", "spec.probe.httpGet.scheme", "spec.probe.httpGet.httpHeaders[1].name"),
		refuses(42, wg, group("probe: {tcpSocket: {port: 65536}}"), "spec.probe.tcpSocket.port"),
		refuses(42, wg, group("probe: {exec: {}, timeoutSeconds: -1}"), "spec.probe.timeoutSeconds", "spec.probe.exec.command"),
		accepts(43, wg, group("metadata: {labels: {app: a}, annotations: {a: 'b c'}}")),
		refuses(43, wg, group("metadata: {labels: {app: 'b c'}, annotations: {a b: c}}"), "spec.metadata.labels[app]", "spec.metadata.annotations[a b]"),
	}
}

func sidecarRulings() []ruling {
	sc := schema.Sidecar
	ingress := func(fields string) string {
		return "{ingress: [{port: {number: 80, name: http, protocol: HTTP}, " + fields + "}]}"
	}
	tls := func(fields string) string { return ingress("tls: {" + fields + "}") }
	egress := func(fields string) string { return "{egress: [{" + fields + "}]}" }
	return []ruling{
		accepts(44, sc, `{inboundConnectionPool: {tcp: {maxConnections: 1}}}`),
		accepts(44, sc, `{outboundTrafficPolicy: {}}`),
		refuses(44, sc, `{}`, "spec"),
		accepts(44, sc, ingress("bind: 10.0.0.1, defaultEndpoint: '[::1]:80'")),
		accepts(44, sc, ingress("defaultEndpoint: 'unix:///a'")),
		accepts(44, sc, ingress("defaultEndpoint: ':80'")),
		refuses(44, sc, `{ingress: [{}]}`, "spec.ingress[0].port"),
		refuses(44, sc, `{ingress: [{port: {number: 0, name: a, protocol: SMTP, targetPort: 1}, bind: a.example}]}`,
			"spec.ingress[0].port.number", "spec.ingress[0].port.protocol", "spec.ingress[0].bind", "spec.ingress[0].port.targetPort"),
		refuses(44, sc, `{ingress: [{port: {number: 80, name: a, protocol: HTTP}}, {port: {number: 80, name: b, protocol: HTTP}, bind: 10.0.0.1}]}`, "spec.ingress[1].port.number"),
		refuses(44, sc, ingress("defaultEndpoint: 10.0.0.1:80"), "spec.ingress[0].defaultEndpoint"),
		refuses(44, sc, ingress("defaultEndpoint: 127.0.0.1"), "spec.ingress[0].defaultEndpoint"),
		refuses(44, sc, ingress("connectionPool: {}"), "spec.ingress[0].connectionPool"),
		accepts(44, sc, tls("mode: SIMPLE, serverCertificate: /c, privateKey: /k")),
		accepts(44, sc, tls("mode: OPTIONAL_MUTUAL, serverCertificate: /c, privateKey: /k, caCertificates: /ca")),
		warns(44, sc, tls("serverCertificate: /c"), "spec.ingress[0].tls"),
		refuses(44, sc, tls("mode: SIMPLE, caCrl: /crl"), "spec.ingress[0].tls.serverCertificate", "spec.ingress[0].tls.privateKey", "spec.ingress[0].tls.caCrl"),
		refuses(44, sc, tls("mode: MUTUAL, serverCertificate: /c, privateKey: /k"), "spec.ingress[0].tls.caCertificates"),
		refuses(44, sc, tls("mode: ISTIO_MUTUAL"), "spec.ingress[0].tls.mode"),
		refuses(44, sc, tls("mode: AUTO_PASSTHROUGH"), "spec.ingress[0].tls.mode"),
		refuses(44, sc, tls("mode: SIMPLE, credentialName: c, subjectAltNames: [a], httpsRedirect: true"),
			"spec.ingress[0].tls.httpsRedirect", "spec.ingress[0].tls.credentialName", "spec.ingress[0].tls.subjectAltNames"),
		accepts(44, sc, `{egress: [{port: {number: 80, name: a, protocol: HTTP}, bind: 127.0.0.1, captureMode: NONE, hosts: ["shop/*"]}, {hosts: ["./a.example", "~/*"]}]}`),
		accepts(44, sc, egress(`port: {number: 0, name: a, protocol: HTTP}, bind: "unix:///a", hosts: ["*/*"]`)),
		warns(44, sc, egress(`hosts: ["shop/*", "shop/a.example"]`), "spec.egress[0].hosts[1]"),
		warns(44, sc, egress(`hosts: ["Shop/*"]`), "spec.egress[0].hosts[0]"),
		refuses(44, sc, egress(``), "spec.egress[0].hosts"),
		refuses(44, sc, egress(`hosts: [a.example, "a_b/*", "shop/a*.example"]`), "spec.egress[0].hosts[0]", "spec.egress[0].hosts[1]", "spec.egress[0].hosts[2]"),
		refuses(44, sc, `{egress: [{hosts: ["*/*"]}, {port: {number: 80, name: a, protocol: HTTP}, hosts: ["*/*"]}]}`, "spec.egress[0]"),
		refuses(44, sc, egress(`port: {number: 80, name: a, protocol: HTTP}, bind: "unix:///a", hosts: ["*/*"]`), "spec.egress[0].port.number"),
		refuses(44, sc, egress(`port: {number: 0, name: a, protocol: HTTP}, hosts: ["*/*"]`), "spec.egress[0].port.number"),
		refuses(44, sc, egress(`port: {number: 0, name: a, protocol: HTTP}, bind: "unix:///a", captureMode: IPTABLES, hosts: ["*/*"]`), "spec.egress[0].captureMode"),
		accepts(44, sc, `{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a.example, subset: V1, port: {number: 80}}}}`),
		refuses(44, sc, `{outboundTrafficPolicy: {egressProxy: {host: "*.a.example"}}}`,
			"spec.outboundTrafficPolicy.egressProxy", "spec.outboundTrafficPolicy.egressProxy.host", "spec.outboundTrafficPolicy.egressProxy.port"),
		warns(44, sc, `{workloadSelector: {labels: {app: a b}}, outboundTrafficPolicy: {}}`, "spec.workloadSelector.labels[app]"),
		refuses(44, sc, `{workloadSelector: {labels: {app: "*"}}, outboundTrafficPolicy: {}}`, "spec.workloadSelector.labels[app]"),
	}
}
