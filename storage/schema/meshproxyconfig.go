package schema

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
)

// ProxyConfigAnnotation is the annotation in the metadata of a WorkloadGroup's spec that has a
// mesh ProxyConfig in YAML, for the machines of the group. (Istio has it for pods and machines.)
const ProxyConfigAnnotation = "proxy.istio.io/config"

// loaders are the variables that agents leave out, or how they begin.
var loaders = []string{"LD_", "ENVOY_DYNAMIC_MODULES_SEARCH_PATH"}

// checkMeshProxyConfig checks a ProxyConfig of the mesh: defaultConfig, or one in an annotation.
func checkMeshProxyConfig(c checker, p *meshv1alpha1.ProxyConfig) {
	checkTracing(c.at("tracing"), p.GetTracing())
	const forwarding = "SANITIZE, FORWARD_ONLY, APPEND_FORWARD, SANITIZE_SET or ALWAYS_FORWARD_ONLY"
	c.at("gatewayTopology", "forwardClientCertDetails").knownValue(p.GetGatewayTopology().GetForwardClientCertDetails(), forwarding)
	checkProxyHeaders(c.at("proxyHeaders"), p.GetProxyHeaders(), forwarding)
	c.at("concurrency").atLeast(p.GetConcurrency(), 0)
	c.at("drainDuration").lasts(p.GetDrainDuration(), time.Second)
	c.at("terminationDrainDuration").lasts(p.GetTerminationDrainDuration(), 0)
	c.at("fileFlushInterval").lasts(p.GetFileFlushInterval(), time.Millisecond)
	for _, name := range sortedKeys(p.GetProxyMetadata()) {
		c.at("proxyMetadata").key(name).variable(name)
	}
	for _, name := range sortedKeys(p.GetRuntimeValues()) {
		if name == "" {
			c.at("runtimeValues").fail("a value has no name: give that of a setting of Envoy's runtime")
		}
	}
	each(c.at("proxyStatsMatcher", "inclusionRegexps"), p.GetProxyStatsMatcher().GetInclusionRegexps(), func(c checker, expression string) {
		if _, err := regexp.Compile(expression); err != nil {
			c.fail("%q is no regular expression (RE2): %v", expression, err)
		}
	})
	if a := p.GetStatsdUdpAddress(); a != "" {
		if at, err := netip.ParseAddrPort(a); err != nil || at.Port() == 0 {
			c.at("statsdUdpAddress").fail("must be an IP address and a port, such as 10.0.0.9:8125, is %q: Envoy resolves no name for it", a)
		}
	}
	checkMetricsService(c.at("envoyMetricsService"), p.GetEnvoyMetricsService())
	c.at("tracingServiceName").knownValue(p.GetTracingServiceName(), "APP_LABEL_AND_NAMESPACE, CANONICAL_NAME_ONLY or CANONICAL_NAME_AND_NAMESPACE")
	checkConnectionSettings(c.at("connectionSettings"), p.GetConnectionSettings())
	if hold := p.GetHoldApplicationUntilProxyStarts(); hold != nil && !hold.GetValue() {
		c.at("holdApplicationUntilProxyStarts").warn("has no effect as false: a unit that is ordered after the agent's starts when the proxy is ready; leave its order out instead")
	}
}

// checkMetricsService checks where the bootstrap of an Envoy sends statistics.
func checkMetricsService(c checker, s *meshv1alpha1.RemoteService) {
	if s == nil {
		return
	}
	host, port, err := net.SplitHostPort(s.GetAddress())
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		c.at("address").fail("must be host:port, is %q", s.GetAddress())
	} else if !isIP(host) {
		c.at("address").failIf(hostName(host))
	}
	c.at("tcpKeepalive").tcpKeepalive(s.GetTcpKeepalive())
	switch mode := s.GetTlsSettings().GetMode(); mode {
	case networking.ClientTLSSettings_DISABLE, networking.ClientTLSSettings_ISTIO_MUTUAL:
	default:
		c.at("tlsSettings", "mode").fail("must be DISABLE or ISTIO_MUTUAL, is %s: for another have an EnvoyFilter merge a cluster and a sink into the BOOTSTRAP", mode)
	}
}

func checkProxyHeaders(c checker, h *meshv1alpha1.ProxyConfig_ProxyHeaders, forwarding string) {
	mode := h.GetForwardedClientCert()
	c.at("forwardedClientCert").knownValue(mode, forwarding)
	if value := h.GetServer().GetValue(); strings.ContainsAny(value, "\r\n\x00") {
		c.at("server", "value").fail("must be in one line, is %q", value)
	}
	if h.GetSetCurrentClientCertDetails() == nil {
		return
	}
	switch mode {
	case meshv1alpha1.ForwardClientCertDetails_UNDEFINED, meshv1alpha1.ForwardClientCertDetails_APPEND_FORWARD, meshv1alpha1.ForwardClientCertDetails_SANITIZE_SET:
	default:
		c.at("setCurrentClientCertDetails").warn("has no effect with the mode %s: it is for APPEND_FORWARD and SANITIZE_SET", mode)
	}
}

// leastWindow is the window that HTTP/2 begins with (RFC 9113, section 6.9.2), and Envoy's least.
const leastWindow = 65535

func checkConnectionSettings(c checker, s *meshv1alpha1.ProxyConfig_ConnectionSettings) {
	c.at("listenerPerConnectionBufferLimitBytes").atLeast(s.GetListenerPerConnectionBufferLimitBytes(), 1)
	c.at("clusterPerConnectionBufferLimitBytes").atLeast(s.GetClusterPerConnectionBufferLimitBytes(), 1)
	c.at("httpMaxConcurrentStreams").atLeast(s.GetHttpMaxConcurrentStreams(), 1)
	c.at("globalDownstreamConnectionLimit").atLeast(s.GetGlobalDownstreamConnectionLimit(), 1)
	c.at("http2InitialStreamWindowSize").atLeast(s.GetHttp2InitialStreamWindowSize(), leastWindow)
	c.at("http2InitialConnectionWindowSize").atLeast(s.GetHttp2InitialConnectionWindowSize(), leastWindow)
	c.at("httpIdleTimeout").lasts(s.GetHttpIdleTimeout(), 0)
	c.at("httpMaxConnectionDuration").lasts(s.GetHttpMaxConnectionDuration(), 0)
	c.at("httpDrainTimeout").lasts(s.GetHttpDrainTimeout(), 0)
	c.at("httpRequestTimeout").lasts(s.GetHttpRequestTimeout(), 0)
	c.at("httpRequestHeadersTimeout").lasts(s.GetHttpRequestHeadersTimeout(), 0)
	c.at("httpStreamIdleTimeout").lasts(s.GetHttpStreamIdleTimeout(), 0)
	c.at("httpMaxStreamDuration").lasts(s.GetHttpMaxStreamDuration(), 0)
	c.at("profile").knownValue(s.GetProfile(), "SIDECAR or EDGE")
	c.at("httpHeadersWithUnderscoresAction").knownValue(s.GetHttpHeadersWithUnderscoresAction(),
		"HEADERS_WITH_UNDERSCORES_ALLOW, HEADERS_WITH_UNDERSCORES_REJECT_REQUEST or HEADERS_WITH_UNDERSCORES_DROP_HEADER")
	c.at("httpPathWithEscapedSlashesAction").knownValue(s.GetHttpPathWithEscapedSlashesAction(),
		"KEEP_UNCHANGED, REJECT_REQUEST, UNESCAPE_AND_REDIRECT or UNESCAPE_AND_FORWARD")
}

// knownValue refuses a value that its enumeration does not have.
func (c checker) knownValue(value protoreflect.Enum, use string) {
	if value.Descriptor().Values().ByNumber(value.Number()) == nil {
		c.fail("%d is unknown: use %s", value.Number(), use)
	}
}

// atLeast demands a number of at least some size, if it is set.
func (c checker) atLeast(n *wrapperspb.Int32Value, least int32) {
	if n != nil && n.GetValue() < least {
		c.fail("must be at least %d, is %d", least, n.GetValue())
	}
}

// lasts demands a duration of at least some length, if it is set.
func (c checker) lasts(d *durationpb.Duration, least time.Duration) {
	if d != nil && (d.CheckValid() != nil || d.AsDuration() < least) {
		c.fail("must be at least %s, is %s", least, d.AsDuration())
	}
}

// variable checks the name of a variable of the environment of a proxy.
func (c checker) variable(name string) {
	switch {
	case name == "" || strings.ContainsAny(name, "= \x00"):
		c.fail("is no name of a variable")
	case slices.ContainsFunc(loaders, func(one string) bool { return strings.HasPrefix(name, one) }):
		c.notServed("has no effect: variables of loaders have programs run other code, which is for the people of the machine")
	}
}

// ProxyConfigOf returns the mesh ProxyConfig in annotations of a WorkloadGroup's spec, nil if they
// have none. The error says what is wrong with it.
func ProxyConfigOf(annotations map[string]string) (*meshv1alpha1.ProxyConfig, error) {
	p, _, err := readProxyConfig(annotations)
	return p, err
}

// readProxyConfig is ProxyConfigOf, and returns warnings of what has no effect, in order.
func readProxyConfig(annotations map[string]string) (p *meshv1alpha1.ProxyConfig, warnings []string, err error) {
	const name = "proxyConfig"
	text := annotations[ProxyConfigAnnotation]
	if text == "" {
		return nil, nil, nil
	}
	p = &meshv1alpha1.ProxyConfig{}
	if err := config.DecodeMessage(name, []byte(text), p); err != nil {
		return nil, nil, err
	}
	r := &Report{}
	checkMeshProxyConfig(r.at(name), p)
	r.at(name).unserved(p.ProtoReflect(), proxyConfigFields())
	return p, r.texts(), r.faults.ErrorOrNil()
}

// texts returns the warnings, in order.
func (r *Report) texts() (out []string) {
	for _, w := range r.warnings {
		out = append(out, w.Text())
	}
	return out
}
