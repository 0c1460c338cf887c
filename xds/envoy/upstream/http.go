package upstream

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// Protocol is the HTTP version for a cluster's endpoints.
type Protocol int

// The versions.
const (
	HTTP1 Protocol = iota
	HTTP2
	// UseDownstream is the client's version.
	UseDownstream
)

const (
	httpProtocolOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	// defaultMaxConcurrentStreams is Istio's default, practically no limit.
	defaultMaxConcurrentStreams = 1 << 30
)

// HTTP describes how a cluster speaks HTTP; 0 means no limit.
type HTTP struct {
	Protocol Protocol
	// IdleTimeout closes a connection without requests. Nil means Envoy's hour; 0 means
	// never.
	IdleTimeout              *durationpb.Duration
	MaxConnectionDuration    time.Duration
	MaxRequestsPerConnection uint32
	MaxConcurrentStreams     uint32 // per HTTP/2 connection
	// PingInterval is the interval of HTTP/2 pings, 0 for none. A connection that does
	// not answer within PingTimeout is closed.
	PingInterval, PingTimeout time.Duration
	// AutoSNI sends the request's host as SNI. AutoSAN accepts only a certificate for
	// that host.
	AutoSNI, AutoSAN bool
	// PreserveCase keeps the case of the names of HTTP/1 headers.
	PreserveCase bool
}

// PreserveCase is the format of the names of HTTP/1 headers that keeps their case. It takes effect
// between a client and an upstream if both sides have it.
func PreserveCase() *corev3.Http1ProtocolOptions_HeaderKeyFormat {
	return &corev3.Http1ProtocolOptions_HeaderKeyFormat{
		HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{StatefulFormatter: &corev3.TypedExtensionConfig{
			Name: "preserve_case", TypedConfig: message.Pack(&preservecasev3.PreserveCaseFormatterConfig{}),
		}},
	}
}

// errors is the matcher of the cluster's outlier detection, nil for Envoy's default.
func (h HTTP) extension(errors *httpv3.HttpProtocolOptions_OutlierDetection) map[string]*anypb.Any {
	out := &httpv3.HttpProtocolOptions{CommonHttpProtocolOptions: h.common(), OutlierDetection: errors}
	if h.AutoSNI || h.AutoSAN {
		out.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: h.AutoSNI, AutoSanValidation: h.AutoSAN}
	}
	http1, http2 := &corev3.Http1ProtocolOptions{}, h.http2()
	if h.PreserveCase {
		http1.HeaderKeyFormat = PreserveCase()
	}
	switch h.Protocol {
	case HTTP1:
		out.UpstreamProtocolOptions = explicit(&httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: http1},
		})
	case HTTP2:
		out.UpstreamProtocolOptions = explicit(&httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: http2},
		})
	case UseDownstream:
		out.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions: http1, Http2ProtocolOptions: http2,
			},
		}
	}
	return map[string]*anypb.Any{httpProtocolOptionsName: message.Pack(out)}
}

func explicit(c *httpv3.HttpProtocolOptions_ExplicitHttpConfig) *httpv3.HttpProtocolOptions_ExplicitHttpConfig_ {
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: c}
}

func (h HTTP) http2() *corev3.Http2ProtocolOptions {
	streams := h.MaxConcurrentStreams
	if streams == 0 {
		streams = defaultMaxConcurrentStreams
	}
	out := &corev3.Http2ProtocolOptions{MaxConcurrentStreams: wrapperspb.UInt32(streams)}
	if h.PingInterval > 0 {
		out.ConnectionKeepalive = &corev3.KeepaliveSettings{
			Interval: durationpb.New(h.PingInterval), Timeout: durationpb.New(h.PingTimeout),
		}
	}
	return out
}

func (h HTTP) common() *corev3.HttpProtocolOptions {
	if h.IdleTimeout == nil && h.MaxConnectionDuration == 0 && h.MaxRequestsPerConnection == 0 {
		return nil
	}
	return &corev3.HttpProtocolOptions{
		IdleTimeout:              h.IdleTimeout,
		MaxConnectionDuration:    message.Seconds(h.MaxConnectionDuration),
		MaxRequestsPerConnection: message.Count(h.MaxRequestsPerConnection),
	}
}
