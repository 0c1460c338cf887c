package meshconfig_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

func TestParse(t *testing.T) {
	t.Parallel()
	c, warnings, err := meshconfig.Parse([]byte(`
connectTimeout: 250ms
outboundTrafficPolicy: {mode: REGISTRY_ONLY}
accessLogFile: /dev/stdout
rootNamespace: mesh
defaultServiceExportTo: ["."]
defaultDestinationRuleExportTo: [shop]
defaultConfig: {gatewayTopology: {numTrustedProxies: 2, forwardClientCertDetails: SANITIZE, proxyProtocol: {}}, concurrency: 2, statNameLength: 200, tracing: {}}
enableTracing: true
tlsDefaults: {minProtocolVersion: TLSV1_3, cipherSuites: [AES128-SHA, RC4], ecdhCurves: [P-256, P-0]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.GetConnectTimeout().AsDuration(); got != 250*time.Millisecond || c.AllowAny() ||
		c.GetRootNamespace() != "mesh" || c.TrustedProxies() != 2 || c.GatewayForwardClientCert() != meshv1alpha1.ForwardClientCertDetails_SANITIZE || !c.ProxyProtocol() || c.GetTrustDomain() != "cluster.local" {
		t.Errorf("parsed %v", c)
	}
	if d := cmp.Diff([]string{
		"meshConfig.defaultConfig.statNameLength has no effect here: Envoy does not limit the length of names",
		`meshConfig.defaultDestinationRuleExportTo stands for every namespace: only "." limits it`,
		"meshConfig.enableTracing has no effect here: proxies trace for a provider alone: name one in defaultProviders.tracing or a Telemetry",
		`meshConfig.tlsDefaults.cipherSuites names "RC4", which Envoy does not know and which is left out`,
		`meshConfig.tlsDefaults.ecdhCurves names "P-0", which Envoy does not know and which is left out`,
	}, slices.Sorted(slices.Values(warnings))); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
	if empty, _, err := meshconfig.Parse(nil); err != nil || !empty.AllowAny() || empty.ProxyProtocol() {
		t.Errorf("of nothing: %v, %v, want the defaults", empty, err)
	}
}

func TestParseNamesAllFaults(t *testing.T) {
	t.Parallel()
	for document, want := range map[string][]string{
		"connectTimeout: 0s\noutboundTrafficPolicy: {mode: 2}":                                            {"meshConfig.connectTimeout: must be at least 1ms", "meshConfig.outboundTrafficPolicy.mode"},
		"outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: MUTUAL, credentialName: mine}}": {"meshConfig.outboundTrafficPolicy.tls.credentialName: sidecars have no secret by the mesh configuration"},
		"outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: MUTUAL}}":                       {"meshConfig.outboundTrafficPolicy.tls.clientCertificate: is missing", "meshConfig.outboundTrafficPolicy.tls.privateKey: is missing"},
		"outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: ISTIO_MUTUAL}}":                 {"meshConfig.outboundTrafficPolicy.tls.mode: ISTIO_MUTUAL is for workloads of the mesh"},
		"conectTimeout: 1s\naccessLogFile: [1]":                                                           {"meshConfig.conectTimeout: unknown field", "meshConfig.accessLogFile: "},
		"defaultServiceExportTo: ['*', shop]\ndefaultVirtualServiceExportTo: [Shop]\ndefaultDestinationRuleExportTo: [a, a]": {
			`meshConfig.defaultServiceExportTo[0]: "*" must stand alone`, `meshConfig.defaultVirtualServiceExportTo[0]: "Shop" has capital letters`,
			`meshConfig.defaultDestinationRuleExportTo[1]: "a" is set twice`},
		"defaultHttpRetryPolicy: {attempts: -1, retryOn: never}":          {"meshConfig.defaultHttpRetryPolicy.attempts: must not be negative", "meshConfig.defaultHttpRetryPolicy.retryOn: unknown condition"},
		"dnsRefreshRate: 1ms\ntcpKeepalive: {time: 0.0001s}":              {"meshConfig.dnsRefreshRate: must be from 2ms", "meshConfig.tcpKeepalive.time: must be at least 1ms"},
		"defaultConfig: {gatewayTopology: {forwardClientCertDetails: 9}}": {"meshConfig.defaultConfig.gatewayTopology.forwardClientCertDetails: 9 is unknown: use SANITIZE"},
		"defaultConfig: {proxyHeaders: {forwardedClientCert: 9}}":         {"meshConfig.defaultConfig.proxyHeaders.forwardedClientCert: 9 is unknown: use SANITIZE"},
		"meshMTLS: {minProtocolVersion: 7, ecdhCurves: [P-256], cipherSuites: [AES128-GCM-SHA256, '!AES256-GCM-SHA384']}": {
			"meshConfig.meshMTLS.minProtocolVersion: 7 is unknown: use TLSV1_2 or TLSV1_3", "meshConfig.meshMTLS.ecdhCurves: workloads agree on one of Envoy's curves: leave it out",
			`meshConfig.meshMTLS.cipherSuites[1]: "!AES256-GCM-SHA384" takes suites away: write out`},
		"meshMTLS: {cipherSuites: [RC4]}\ntlsDefaults: {minProtocolVersion: 9, cipherSuites: [RC4]}": {
			"meshConfig.meshMTLS.cipherSuites: Envoy knows none of them: name one such as", "meshConfig.tlsDefaults.cipherSuites: Envoy knows none of them",
			"meshConfig.tlsDefaults.minProtocolVersion: 9 is unknown"},
		"proxyHttpPort: 65536":                  {"meshConfig.proxyHttpPort: must be a port"},
		"pathNormalization: {normalization: 9}": {"meshConfig.pathNormalization.normalization: 9 is unknown: use NONE"},
		"extensionProviders: [{}, {name: a, envoyExtAuthzGrpc: {}}, {name: a, envoyExtAuthzHttp: {service: '*.test', port: 70000, timeout: 0s, pathPrefix: check, statusOnError: '7', includeRequestBodyInCheck: {}}}]": {
			"meshConfig.extensionProviders[0].name: is missing", "meshConfig.extensionProviders[0]: has no kind",
			"meshConfig.extensionProviders[1].envoyExtAuthzGrpc.service: is missing", "meshConfig.extensionProviders[1].envoyExtAuthzGrpc.port: must be a port",
			`meshConfig.extensionProviders[2].name: "a" is the name of another provider`, `meshConfig.extensionProviders[2].envoyExtAuthzHttp.service: "*.test" stands for many hosts`,
			"envoyExtAuthzHttp.port: must be a port from 1 to 65535, is 70000", "envoyExtAuthzHttp.timeout: must be at least 1ms", "envoyExtAuthzHttp.pathPrefix: must be a path",
			"envoyExtAuthzHttp.statusOnError: \"7\" is no status", "includeRequestBodyInCheck.maxRequestBytes: must be at least 1"},
		"extensionProviders: [{name: a, envoyExtAuthzHttp: {service: a.test, port: 80, headersToUpstreamOnAllow: ['*'], includeAdditionalHeadersInCheck: {'a b': c}}}]": {
			`headersToUpstreamOnAllow[0]: "*" names no header`, `includeAdditionalHeadersInCheck: "a b" is not the name`},
		"a: b: c": {"not valid YAML"},
	} {
		_, _, err := meshconfig.Parse([]byte(document))
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want %q in it", document, err, part)
			}
		}
	}
}

func TestOutboundTrafficPolicy(t *testing.T) {
	t.Parallel()
	const idle = "meshConfig.outboundTrafficPolicy.tls has no effect with the mode ALLOW_ANY: it is for ALLOW_ANY_DYNAMIC_DNS"
	for document, want := range map[string]struct {
		any, dynamic bool
		warnings     []string
	}{
		"{mode: REGISTRY_ONLY}":                  {},
		"{}":                                     {},
		"{mode: ALLOW_ANY}":                      {any: true},
		"{mode: ALLOW_ANY, tls: {mode: SIMPLE}}": {any: true, warnings: []string{idle}},
		"{mode: ALLOW_ANY_DYNAMIC_DNS}":          {any: true, dynamic: true},
		"{mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: DISABLE}}": {any: true, dynamic: true},
		"{mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE}}":  {any: true, dynamic: true},
	} {
		c, warnings, err := meshconfig.Parse([]byte("outboundTrafficPolicy: " + document))
		if err != nil || c.AllowAny() != want.any || c.AllowAnyDynamicDNS() != want.dynamic || !slices.Equal(warnings, want.warnings) {
			t.Errorf("%s: %v, %q, %v", document, c.GetOutboundTrafficPolicy(), warnings, err)
		}
	}
}

// Sidecars write a caller's subject and names, unless proxyHeaders says otherwise.
func TestProxyHeaders(t *testing.T) {
	t.Parallel()
	const (
		appends = meshv1alpha1.ForwardClientCertDetails_APPEND_FORWARD
		sets    = meshv1alpha1.ForwardClientCertDetails_SANITIZE_SET
		removes = meshv1alpha1.ForwardClientCertDetails_SANITIZE
	)
	usual := meshconfig.ClientCertDetails{Subject: true, DNS: true, URI: true}
	for headers, want := range map[string]struct {
		mode     meshv1alpha1.ForwardClientCertDetails
		details  meshconfig.ClientCertDetails
		warnings []string
	}{
		"{}":                                  {appends, usual, nil},
		"{forwardedClientCert: SANITIZE_SET}": {sets, usual, nil},
		"{forwardedClientCert: SANITIZE}":     {removes, usual, nil},
		"{setCurrentClientCertDetails: {}}":   {appends, usual, nil},
		"{setCurrentClientCertDetails: {subject: false, dns: false, cert: true}}": {appends, meshconfig.ClientCertDetails{URI: true, Cert: true}, nil},
		"{setCurrentClientCertDetails: {uri: false, chain: true}}":                {appends, meshconfig.ClientCertDetails{Subject: true, DNS: true, Chain: true}, nil},
		"{forwardedClientCert: SANITIZE, setCurrentClientCertDetails: {cert: true}}": {removes, meshconfig.ClientCertDetails{Subject: true, DNS: true, URI: true, Cert: true}, []string{
			"meshConfig.defaultConfig.proxyHeaders.setCurrentClientCertDetails has no effect with the mode SANITIZE: it is for APPEND_FORWARD and SANITIZE_SET"}},
		"{server: {disabled: true}, requestId: {}, attemptCount: {}, envoyDebugHeaders: {}, metadataExchangeHeaders: {}, preserveHttp1HeaderCase: true, xForwardedHost: {}, xForwardedPort: {}}": {appends, usual, []string{
			"meshConfig.defaultConfig.proxyHeaders.metadataExchangeHeaders has no effect here: proxies exchange no metadata in headers",
		}},
	} {
		c, warnings, err := meshconfig.Parse([]byte("defaultConfig: {proxyHeaders: " + headers + "}"))
		if err != nil {
			t.Errorf("%s: %v", headers, err)
			continue
		}
		if c.ForwardClientCert() != want.mode || c.ClientCertDetails() != want.details || !slices.Equal(slices.Sorted(slices.Values(warnings)), want.warnings) {
			t.Errorf("%s: %s, %+v, %q", headers, c.ForwardClientCert(), c.ClientCertDetails(), warnings)
		}
	}
}

// Cipher suites of the TLS between workloads that have no effect are told.
func TestMeshMTLS(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string][]string{
		"{}": nil,
		"{minProtocolVersion: TLSV1_2, cipherSuites: [AES128-GCM-SHA256]}": nil,
		"{minProtocolVersion: TLSV1_3}":                                    nil,
		"{cipherSuites: [AES128-GCM-SHA256, RC4]}":                         {`meshConfig.meshMTLS.cipherSuites names "RC4", which Envoy does not know and which is left out`},
		"{minProtocolVersion: TLSV1_3, cipherSuites: [AES128-GCM-SHA256]}": {"meshConfig.meshMTLS.cipherSuites has no effect with minProtocolVersion TLSV1_3: it is for TLS 1.2"},
	} {
		if _, warnings, err := meshconfig.Parse([]byte("meshMTLS: " + settings)); err != nil || !slices.Equal(warnings, want) {
			t.Errorf("%s: %q, %v", settings, warnings, err)
		}
	}
}

func TestProvidersWithoutEffect(t *testing.T) {
	t.Parallel()
	c, warnings, err := meshconfig.Parse([]byte("extensionProviders: [{name: a, stackdriver: {}}, " +
		"{name: b, envoyExtAuthzHttp: {service: b.test, port: 80, includeHeadersInCheck: [x], includeRequestBodyInCheck: {maxRequestBytes: 1, packAsBytes: true}}}]"))
	if err != nil || c.Authorizer("a") != nil || c.Authorizer("b") == nil || c.Authorizer("c") != nil {
		t.Fatal(c, err)
	}
	if d := cmp.Diff([]string{
		"meshConfig.extensionProviders[0].stackdriver has no effect here: a stock Envoy reports nothing to Google Cloud itself: use opentelemetry, envoyOtelAls and prometheus",
		"meshConfig.extensionProviders[1].envoyExtAuthzHttp.includeHeadersInCheck is deprecated: use includeRequestHeadersInCheck",
		"meshConfig.extensionProviders[1].envoyExtAuthzHttp.includeRequestBodyInCheck.packAsBytes has no effect: it is for envoyExtAuthzGrpc",
	}, slices.Sorted(slices.Values(warnings))); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}
