package verdict_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// toTest is a route to the service of the walk, and thenAll ends a list of http routes.
const (
	toTest  = "route: [{destination: {host: web.test}}]"
	thenAll = ", {" + toTest + "}]"
)

// routeSettings has routes for every served field of a VirtualService, by its path. Indexes are
// left out: the field is that of the first element.
var routeSettings = map[string]string{
	"http.name":                             "http: [{name: first, " + toTest + "}]",
	"http.match.name":                       "http: [{name: first, match: [{name: m, uri: {exact: /a}}], " + toTest + "}" + thenAll,
	"http.match.uri":                        "http: [{match: [{uri: {exact: /a}, method: {exact: GET}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.scheme":                     "http: [{match: [{uri: {exact: /a}, scheme: {exact: https}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.method":                     "http: [{match: [{uri: {exact: /a}, method: {exact: GET}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.authority":                  "http: [{match: [{uri: {exact: /a}, authority: {exact: web.test}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.headers":                    "http: [{match: [{uri: {exact: /a}, headers: {x: {exact: a}}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.withoutHeaders":             "http: [{match: [{uri: {exact: /a}, withoutHeaders: {x: {exact: a}}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.queryParams":                "http: [{match: [{uri: {exact: /a}, queryParams: {x: {exact: a}}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.ignoreUriCase":              "http: [{match: [{uri: {exact: /a}, ignoreUriCase: true}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.port":                       "http: [{match: [{uri: {exact: /a}, port: 4}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.sourceLabels":               "http: [{match: [{uri: {exact: /a}, sourceLabels: {app: other}}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.sourceNamespace":            "http: [{match: [{uri: {exact: /a}, sourceNamespace: other}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.gateways":                   "http: [{match: [{uri: {exact: /a}, gateways: [nobody]}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.match.statPrefix":                 "http: [{match: [{uri: {exact: /a}, statPrefix: s}], " + toTest + ", timeout: 3s}" + thenAll,
	"http.route.destination.subset":         "http: [{route: [{destination: {host: web.test, subset: v1}}]}]",
	"http.route.destination.port":           "http: [{route: [{destination: {host: web.test, port: {number: 4}}}]}]",
	"http.route.weight":                     "http: [{route: [{destination: {host: web.test}, weight: 3}, {destination: {host: web.test, subset: v1}, weight: 1}]}]",
	"http.route.headers.request.set":        "http: [{route: [{destination: {host: web.test}, headers: {request: {set: {x: a}}}}]}]",
	"http.route.headers.request.add":        "http: [{route: [{destination: {host: web.test}, headers: {request: {add: {x: a}}}}]}]",
	"http.route.headers.request.remove":     "http: [{route: [{destination: {host: web.test}, headers: {request: {remove: [x]}}}]}]",
	"http.route.headers.response.set":       "http: [{route: [{destination: {host: web.test}, headers: {response: {set: {x: a}}}}]}]",
	"http.route.headers.response.add":       "http: [{route: [{destination: {host: web.test}, headers: {response: {add: {x: a}}}}]}]",
	"http.route.headers.response.remove":    "http: [{route: [{destination: {host: web.test}, headers: {response: {remove: [x]}}}]}]",
	"http.headers.request":                  "http: [{" + toTest + ", headers: {request: {set: {x: a}}}}]",
	"http.headers.response":                 "http: [{" + toTest + ", headers: {response: {set: {x: a}}}}]",
	"http.redirect.uri":                     "http: [{redirect: {uri: /b, authority: a.test}}]",
	"http.redirect.authority":               "http: [{redirect: {uri: /b, authority: a.test}}]",
	"http.redirect.port":                    "http: [{redirect: {uri: /b, port: 8080}}]",
	"http.redirect.derivePort":              "http: [{redirect: {uri: /b, scheme: https, derivePort: FROM_REQUEST_PORT}}]",
	"http.redirect.scheme":                  "http: [{redirect: {uri: /b, scheme: https}}]",
	"http.redirect.redirectCode":            "http: [{redirect: {uri: /b, redirectCode: 308}}]",
	"http.redirect.prefixRewrite":           "http: [{match: [{uri: {prefix: /a}}], redirect: {authority: a.test, prefixRewrite: /b}}]",
	"http.directResponse.status":            "http: [{directResponse: {status: 418}}]",
	"http.directResponse.body":              "http: [{directResponse: {status: 418, body: {string: tea}}}]",
	"http.delegate":                         "http: [{match: [{uri: {prefix: /a}}], delegate: {name: part}}" + thenAll,
	"http.rewrite.uri":                      "http: [{" + toTest + ", rewrite: {uri: /b, authority: a.test}}]",
	"http.rewrite.authority":                "http: [{" + toTest + ", rewrite: {uri: /b, authority: a.test}}]",
	"http.rewrite.uriRegexRewrite":          "http: [{" + toTest + ", rewrite: {authority: a.test, uriRegexRewrite: {match: /a, rewrite: /b}}}]",
	"http.timeout":                          "http: [{" + toTest + ", timeout: 3s}]",
	"http.retries.attempts":                 "http: [{" + toTest + ", retries: {attempts: 4}}]",
	"http.retries.perTryTimeout":            "http: [{" + toTest + ", retries: {attempts: 4, perTryTimeout: 1s}}]",
	"http.retries.retryOn":                  "http: [{" + toTest + ", retries: {attempts: 4, retryOn: 5xx}}]",
	"http.retries.retryRemoteLocalities":    "http: [{" + toTest + ", retries: {attempts: 4, retryRemoteLocalities: true}}]",
	"http.retries.retryIgnorePreviousHosts": "http: [{" + toTest + ", retries: {attempts: 4, retryIgnorePreviousHosts: false}}]",
	"http.retries.backoff":                  "http: [{" + toTest + ", retries: {attempts: 4, backoff: 50ms}}]",
	"http.fault.delay":                      "http: [{" + toTest + ", fault: {delay: {fixedDelay: 1s, percentage: {value: 10}}}}]",
	"http.fault.abort":                      "http: [{" + toTest + ", fault: {abort: {httpStatus: 500, percentage: {value: 10}}}}]",
	"http.mirror":                           "http: [{" + toTest + ", mirror: {host: web.test, subset: v1}}]",
	"http.mirrorPercentage":                 "http: [{" + toTest + ", mirror: {host: web.test, subset: v1}, mirrorPercentage: {value: 7}}]",
	"http.mirrorPercent":                    "http: [{" + toTest + ", mirror: {host: web.test, subset: v1}, mirrorPercent: 7}]",
	"http.mirrors":                          "http: [{" + toTest + ", mirrors: [{destination: {host: web.test, subset: v1}}]}]",
	"http.corsPolicy.allowOrigins":          "http: [{" + toTest + ", corsPolicy: {allowOrigins: [{exact: 'http://a'}]}}]",
	"http.corsPolicy.allowOrigin":           "http: [{" + toTest + ", corsPolicy: {allowOrigin: ['http://a']}}]",
	"http.corsPolicy.allowMethods":          "http: [{" + toTest + ", corsPolicy: {allowOrigins: [{exact: 'http://a'}], allowMethods: [GET]}}]",
	"http.corsPolicy.allowHeaders":          "http: [{" + toTest + ", corsPolicy: {allowOrigins: [{exact: 'http://a'}], allowHeaders: [x]}}]",
	"http.corsPolicy.exposeHeaders":         "http: [{" + toTest + ", corsPolicy: {allowOrigins: [{exact: 'http://a'}], exposeHeaders: [x]}}]",
	"http.corsPolicy.maxAge":                "http: [{" + toTest + ", corsPolicy: {allowOrigins: [{exact: 'http://a'}], maxAge: 30s}}]",
	"http.corsPolicy.allowCredentials":      "http: [{" + toTest + ", corsPolicy: {allowOrigins: [{exact: 'http://a'}], allowCredentials: true}}]",
	"http.corsPolicy.unmatchedPreflights":   "http: [{" + toTest + ", corsPolicy: {allowOrigins: [{exact: 'http://a'}], unmatchedPreflights: IGNORE}}]",
	"tcp.match.destinationSubnets":          "tcp: [{match: [{destinationSubnets: [10.9.0.0/16]}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tcp.match.port":                        "tcp: [{match: [{port: 4}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tcp.match.sourceLabels":                "tcp: [{match: [{port: 7000, sourceLabels: {app: other}}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tcp.match.sourceNamespace":             "tcp: [{match: [{port: 7000, sourceNamespace: other}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tcp.match.gateways":                    "tcp: [{match: [{port: 7000, gateways: [nobody]}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tcp.route.destination.subset":          "tcp: [{route: [{destination: {host: web.test, subset: v1}}]}]",
	"tcp.route.destination.port":            "tcp: [{route: [{destination: {host: web.test, port: {number: 4}}}]}]",
	"tcp.route.weight":                      "tcp: [{route: [{destination: {host: web.test}, weight: 3}, {destination: {host: web.test, subset: v1}, weight: 1}]}]",
	"tls.match.sniHosts":                    "tls: [{match: [{sniHosts: [web.test]}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tls.match.destinationSubnets":          "tls: [{match: [{sniHosts: [web.test], destinationSubnets: [10.8.0.0/16]}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tls.match.port":                        "tls: [{match: [{sniHosts: [web.test], port: 4}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tls.match.sourceLabels":                "tls: [{match: [{sniHosts: [web.test], sourceLabels: {app: other}}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tls.match.sourceNamespace":             "tls: [{match: [{sniHosts: [web.test], sourceNamespace: other}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tls.match.gateways":                    "tls: [{match: [{sniHosts: [web.test], gateways: [nobody]}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tls.route.destination.subset":          "tls: [{match: [{sniHosts: [web.test]}], route: [{destination: {host: web.test, subset: v1}}]}]",
	"tls.route.destination.port":            "tls: [{match: [{sniHosts: [web.test]}], route: [{destination: {host: web.test, port: {number: 4}}}]}]",
	"tls.route.weight":                      "tls: [{match: [{sniHosts: [web.test]}], route: [{destination: {host: web.test}, weight: 3}, {destination: {host: web.test, subset: v1}, weight: 1}]}]",
}

// serverSettings has a server of a Gateway for every served field of one, by its path. %s is
// the protocol.
var serverSettings = map[string]string{
	"servers.port.protocol":             "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test]}",
	"servers.bind":                      "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], bind: 10.9.0.3}",
	"servers.tls.httpsRedirect":         "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {httpsRedirect: true}}",
	"servers.tls.mode":                  "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, credentialName: www}}",
	"servers.tls.credentialName":        "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, credentialName: www}}",
	"servers.tls.credentialNames":       "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, credentialNames: [www]}}",
	"servers.tls.serverCertificate":     "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, serverCertificate: /a, privateKey: /b}}",
	"servers.tls.privateKey":            "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, serverCertificate: /a, privateKey: /b}}",
	"servers.tls.tlsCertificates":       "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, tlsCertificates: [{serverCertificate: /a, privateKey: /b}]}}",
	"servers.tls.caCertificates":        "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, serverCertificate: /a, privateKey: /b, caCertificates: /c}}",
	"servers.tls.caCrl":                 "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, serverCertificate: /a, privateKey: /b, caCrl: /c}}",
	"servers.tls.caCertCredentialName":  "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, credentialName: www, caCertCredentialName: clients}}",
	"servers.tls.subjectAltNames":       "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, credentialName: www, subjectAltNames: [a]}}",
	"servers.tls.verifyCertificateSpki": "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, credentialName: www, verifyCertificateSpki: [AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]}}",
	"servers.tls.verifyCertificateHash": "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, credentialName: www, verifyCertificateHash: [aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00]}}",
	"servers.tls.insecureSkipVerify":    "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: SIMPLE, credentialName: www, insecureSkipVerify: true}}",
	"servers.tls.minProtocolVersion":    "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, minProtocolVersion: TLSV1_3}}",
	"servers.tls.maxProtocolVersion":    "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, maxProtocolVersion: TLSV1_2}}",
	"servers.tls.cipherSuites":          "{port: {number: 80, name: a, protocol: %s}, hosts: [web.test], tls: {mode: PASSTHROUGH, cipherSuites: [ECDHE-ECDSA-AES128-GCM-SHA256]}}",
}

// TestRoutesWithoutEffectAreTold: each setting of a VirtualService changes what some proxy gets.
// Otherwise it is refused, or a verdict or a warning of the schema tells of it. The test tries
// services of each protocol, and a gateway's servers of each.
func TestRoutesWithoutEffectAreTold(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	for _, message := range []struct {
		at   string
		of   proto.Message
		skip []string
	}{
		{"http", &networking.HTTPRoute{}, nil}, {"http.match", &networking.HTTPMatchRequest{}, nil}, {"http.route", &networking.HTTPRouteDestination{}, nil},
		{"http.redirect", &networking.HTTPRedirect{}, nil}, {"http.retries", &networking.HTTPRetry{}, nil}, {"http.corsPolicy", &networking.CorsPolicy{}, nil},
		{"tcp.match", &networking.L4MatchAttributes{}, []string{"tcp.match.sourceSubnet"}}, {"tls.match", &networking.TLSMatchAttributes{}, nil},
	} {
		covers(t, routeSettings, message.of.ProtoReflect().Descriptor(), message.at, message.skip)
	}
	type place struct{ name, service, gateway string }
	var places []place
	for _, protocol := range []string{"HTTP", "HTTP2", "GRPC", "GRPC-WEB", "TCP", "MONGO", "TLS", "HTTPS"} {
		places = append(places, place{name: "sidecars, " + protocol, service: protocol})
	}
	for name, server := range map[string]string{
		"HTTP": "protocol: HTTP}", "GRPC": "protocol: GRPC}", "TCP": "protocol: TCP}", "HTTPS, ended": "protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: www}",
		"TLS, ended": "protocol: TLS}, tls: {mode: SIMPLE, credentialName: www}", "HTTPS, passed on": "protocol: HTTPS}, tls: {mode: PASSTHROUGH}", "TLS, passed on": "protocol: TLS}, tls: {mode: PASSTHROUGH}",
		"redirect": "protocol: HTTP}, tls: {httpsRedirect: true}", "automatic": "protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}",
	} {
		places = append(places, place{name: "gateway, " + name, service: "HTTP", gateway: server})
	}
	for _, p := range places {
		w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "web", fmt.Sprintf("{hosts: [web.test], resolution: STATIC, addresses: [10.9.0.77], ports: [{number: 7000, name: p, protocol: %s}], endpoints: [{address: 10.1.0.1, labels: {v: v1}}]}", p.service)),
			rule("web", "{host: web.test, subsets: [{name: v1, labels: {v: v1}}]}"), routes("part", "{http: [{"+toTest+", timeout: 7s}]}"))
		w.PutSecret("default/www", secret.TLSCert, secret.TLSKey)
		head := "{hosts: [web.test], "
		if p.gateway != "" {
			w.Apply(gateway("edge", "{selector: {app: edge}, servers: [{hosts: [web.test], port: {number: 7000, name: a, "+p.gateway+"}]}"))
			head += "gateways: [edge], "
		}
		for _, path := range slices.Sorted(maps.Keys(routeSettings)) {
			walkField(t, w, p.name, path, routes("v", head+routeSettings[path]+"}"))
		}
	}
}

// TestServersWithoutEffectAreTold is TestRoutesWithoutEffectAreTold of the servers of a Gateway.
func TestServersWithoutEffectAreTold(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	covers(t, serverSettings, (&networking.Server{}).ProtoReflect().Descriptor(), "servers", []string{"servers.hosts", "servers.name", "servers.port", "servers.defaultEndpoint"})
	covers(t, serverSettings, (&networking.ServerTLSSettings{}).ProtoReflect().Descriptor(), "servers.tls", nil)
	for _, protocol := range []string{"HTTP", "HTTP2", "GRPC", "GRPC-WEB", "TCP", "MONGO", "TLS", "HTTPS"} {
		kind := map[string]string{"TCP": "tcp: [{", "MONGO": "tcp: [{", "TLS": "tls: [{match: [{sniHosts: [web.test]}], "}[protocol]
		if kind == "" {
			kind = "http: [{"
		}
		w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "web", "{hosts: [web.test], resolution: STATIC, addresses: [10.9.0.77], ports: [{number: 7000, name: p, protocol: HTTP}], endpoints: [{address: 10.1.0.1}]}"),
			routes("v", "{hosts: [web.test], gateways: [edge], "+kind+toTest+"}]}"))
		w.PutSecret("default/www", secret.TLSCert, secret.TLSKey)
		w.PutSecret("default/clients", secret.Authority)
		for _, path := range slices.Sorted(maps.Keys(serverSettings)) {
			walkField(t, w, "server of "+protocol, path, gateway("edge", "{selector: {app: edge}, servers: ["+fmt.Sprintf(serverSettings[path], protocol)+"]}"))
		}
	}
}

// walkField applies an object without the field at path, and with it.
func walkField(t *testing.T, w *xdstest.World, place, path, document string) {
	t.Helper()
	with, without := decoded(t, document), decoded(t, document)
	clearAt(without.Spec.(proto.Message).ProtoReflect(), strings.Split(path, "."))
	kind := schema.Pilot().Kind(with.GroupVersionKind)
	warnings, err := kind.Validate(with)
	if err != nil {
		return // refused
	}
	field := "spec." + path
	told := slices.ContainsFunc(warnings, func(x schema.Warning) bool { return concerns(x.Field, field) })
	before := ""
	if _, err := kind.Validate(without); err == nil {
		w.Put(without)
		before = built(t, w)
	}
	w.Put(with)
	if told || built(t, w) != before {
		return
	}
	var verdicts []string
	for l := range (*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context(), Proxies: proxies(bystander("default"), router(map[string]string{"app": "edge"}))}).Lists() {
		for _, v := range l.Verdicts {
			if l.Of.Name == with.Name && l.Of.Kind == with.GroupVersionKind.Kind {
				told = told || concerns(v.Field, field)
				verdicts = append(verdicts, string(v.Code)+" "+v.Field)
			}
		}
	}
	if !told {
		t.Errorf("%s: %s has no effect, and nobody tells: %v", place, path, verdicts)
	}
}

func decoded(t *testing.T, document string) *config.Config {
	t.Helper()
	out, err := config.Decode("test", []byte(document), schema.Pilot().Type)
	if err != nil || len(out) != 1 {
		t.Fatalf("%s: %v", document, err)
	}
	return out[0].Config
}

// concerns reports whether what is said of one field, with indexes, is said of another one, without.
func concerns(said, field string) bool {
	var plain strings.Builder
	for part := range strings.SplitSeq(said, "[") {
		if _, after, indexed := strings.Cut(part, "]"); indexed {
			part = after
		}
		plain.WriteString(part)
	}
	return strings.HasPrefix(field+".", plain.String()+".") || strings.HasPrefix(plain.String(), field)
}

// clearAt clears the field at path, of the first elements of lists.
func clearAt(m protoreflect.Message, path []string) {
	fd := m.Descriptor().Fields().ByJSONName(path[0])
	switch {
	case len(path) == 1:
		m.Clear(fd)
	case fd.IsList():
		clearAt(m.Mutable(fd).List().Get(0).Message(), path[1:])
	default:
		clearAt(m.Mutable(fd).Message(), path[1:])
	}
}

// covers fails where a field of a message has no value in a walk, and is not left out of it.
func covers(t *testing.T, settings map[string]string, d protoreflect.MessageDescriptor, at string, left []string) {
	t.Helper()
	for path := range settingsOf(d, at) {
		if !slices.Contains(left, path) && !slices.ContainsFunc(keys(settings), func(p string) bool { return p == path || strings.HasPrefix(p, path+".") }) {
			t.Errorf("the walk has no value for %s", path)
		}
	}
}
