package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

// HTTPProxy says how a connection manager speaks HTTP. The zero value is Istio's default.
type HTTPProxy struct {
	// KeepServer leaves the header "server" of responses as the upstream wrote it.
	KeepServer bool
	// NoRequestID gives requests without X-Request-Id none.
	NoRequestID bool
	// ForwardPort writes the port that the client used into X-Forwarded-Port.
	ForwardPort bool
	// PreserveCase keeps the case of the names of HTTP/1 headers, towards clients. The clusters do the
	// same towards upstreams.
	PreserveCase bool
	// HTTP10 takes HTTP/1.0 requests.
	HTTP10 bool
	// IdleTimeout closes a client's connection without requests. Nil means Envoy's hour; 0 means never.
	IdleTimeout *durationpb.Duration
	// Connections are further limits, nil for none. They outrank the IdleTimeout and the
	// Normalization of the manager.
	Connections *meshv1alpha1.ProxyConfig_ConnectionSettings
}

// apply sets the options of a manager that has the defaults.
func (p HTTPProxy) apply(m *hcmv3.HttpConnectionManager) {
	if p.KeepServer {
		m.ServerName, m.ServerHeaderTransformation = "", hcmv3.HttpConnectionManager_PASS_THROUGH
	}
	if p.NoRequestID {
		m.GenerateRequestId = wrapperspb.Bool(false)
	}
	m.AppendXForwardedPort = p.ForwardPort
	if p.PreserveCase || p.HTTP10 {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AcceptHttp_10: p.HTTP10}
		if p.PreserveCase {
			m.HttpProtocolOptions.HeaderKeyFormat = upstream.PreserveCase()
		}
	}
	common := &corev3.HttpProtocolOptions{IdleTimeout: p.IdleTimeout}
	if p.Connections != nil {
		p.limit(m, common)
	}
	if common.IdleTimeout != nil || common.MaxConnectionDuration != nil || common.MaxStreamDuration != nil ||
		common.HeadersWithUnderscoresAction != corev3.HttpProtocolOptions_ALLOW {
		m.CommonHttpProtocolOptions = common
	}
}

// limit applies the Connections. (Istio: applyConnectionSettingsToHCM.)
func (p HTTPProxy) limit(m *hcmv3.HttpConnectionManager, common *corev3.HttpProtocolOptions) {
	set := p.Connections
	if t := set.GetHttpIdleTimeout(); t != nil {
		common.IdleTimeout = t
	}
	common.MaxConnectionDuration, common.MaxStreamDuration = set.GetHttpMaxConnectionDuration(), set.GetHttpMaxStreamDuration()
	if t := set.GetHttpStreamIdleTimeout(); t != nil {
		m.StreamIdleTimeout = t
	}
	m.RequestTimeout, m.RequestHeadersTimeout, m.DrainTimeout = set.GetHttpRequestTimeout(), set.GetHttpRequestHeadersTimeout(), set.GetHttpDrainTimeout()
	if set.GetHttpMaxConcurrentStreams() != nil || set.GetHttp2InitialStreamWindowSize() != nil || set.GetHttp2InitialConnectionWindowSize() != nil {
		m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams:        unsigned(set.GetHttpMaxConcurrentStreams()),
			InitialStreamWindowSize:     unsigned(set.GetHttp2InitialStreamWindowSize()),
			InitialConnectionWindowSize: unsigned(set.GetHttp2InitialConnectionWindowSize()),
		}
	}
	switch set.GetHttpHeadersWithUnderscoresAction() {
	case meshv1alpha1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST:
		common.HeadersWithUnderscoresAction = corev3.HttpProtocolOptions_REJECT_REQUEST
	case meshv1alpha1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_DROP_HEADER:
		common.HeadersWithUnderscoresAction = corev3.HttpProtocolOptions_DROP_HEADER
	}
	if merge := set.GetHttpMergeSlashes(); merge != nil {
		m.MergeSlashes = merge.GetValue()
	}
	switch set.GetHttpPathWithEscapedSlashesAction() {
	case meshv1alpha1.ProxyConfig_ConnectionSettings_KEEP_UNCHANGED:
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_KEEP_UNCHANGED
	case meshv1alpha1.ProxyConfig_ConnectionSettings_REJECT_REQUEST:
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_REJECT_REQUEST
	case meshv1alpha1.ProxyConfig_ConnectionSettings_UNESCAPE_AND_REDIRECT:
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT
	case meshv1alpha1.ProxyConfig_ConnectionSettings_UNESCAPE_AND_FORWARD:
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}

// unsigned converts a number that validation keeps from being negative.
func unsigned(n *wrapperspb.Int32Value) *wrapperspb.UInt32Value {
	if n == nil {
		return nil
	}
	return wrapperspb.UInt32(uint32(max(0, n.GetValue())))
}
