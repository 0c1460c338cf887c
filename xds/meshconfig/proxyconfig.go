package meshconfig

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/discovery"
)

// Over returns a configuration with the defaultConfig that a proxy has: what it states itself, laid
// over the one of c. It has no other field. Without statements it is c.
func (c *Config) Over(stated discovery.ProxySettings) *Config {
	if stated == (discovery.ProxySettings{}) {
		return c
	}
	merged, own := &meshv1alpha1.ProxyConfig{}, &meshv1alpha1.ProxyConfig{}
	_ = proto.Unmarshal([]byte(stated.Config), own) // marshaled where the node was read
	proto.Merge(merged, c.GetDefaultConfig())
	MergeProxyConfig(merged, own)
	for name, value := range map[string]string{discovery.HTTP10Metadata: stated.HTTP10, discovery.IdleTimeoutMetadata: stated.IdleTimeout} {
		if value == "" {
			continue
		}
		if merged.ProxyMetadata == nil {
			merged.ProxyMetadata = map[string]string{}
		}
		merged.ProxyMetadata[discovery.MetadataVariable(name)] = value
	}
	return &Config{MeshConfig: &meshv1alpha1.MeshConfig{DefaultConfig: merged}}
}

// MergeProxyConfig lays a ProxyConfig over another, field by field. Wrapped numbers and truths
// replace, also with 0 and false; lists are joined, as Istio joins them. (Istio: mergeWithPrecedence.)
func MergeProxyConfig(into, over *meshv1alpha1.ProxyConfig) {
	proto.Merge(into, over)
	if over.GetConcurrency() != nil {
		into.Concurrency = over.GetConcurrency()
	}
}

func (c *Config) headers() *meshv1alpha1.ProxyConfig_ProxyHeaders {
	return c.GetDefaultConfig().GetProxyHeaders()
}

// ServerHeader is the value of the header "server" of responses, empty for what the kind of listener
// has by itself. keep leaves the header as the upstream wrote it.
func (c *Config) ServerHeader() (value string, keep bool) {
	server := c.headers().GetServer()
	if server.GetDisabled().GetValue() {
		return "", true
	}
	return server.GetValue(), false
}

// MakesRequestIDs says whether proxies give a request without X-Request-Id one.
func (c *Config) MakesRequestIDs() bool { return !c.headers().GetRequestId().GetDisabled().GetValue() }

// CountsAttempts says whether proxies write X-Envoy-Attempt-Count.
func (c *Config) CountsAttempts() bool {
	return !c.headers().GetAttemptCount().GetDisabled().GetValue()
}

// WritesDebugHeaders says whether proxies write X-Envoy headers such as
// X-Envoy-Upstream-Service-Time.
func (c *Config) WritesDebugHeaders() bool {
	return !c.headers().GetEnvoyDebugHeaders().GetDisabled().GetValue()
}

// PreservesHeaderCase says whether the names of HTTP/1 headers keep their case.
func (c *Config) PreservesHeaderCase() bool {
	return c.headers().GetPreserveHttp1HeaderCase().GetValue()
}

// ForwardsHost says whether proxies write the host of a request into X-Forwarded-Host where they
// replace it, and ForwardsPort whether they write the port that the client used into X-Forwarded-Port.
func (c *Config) ForwardsHost() bool { return c.headers().GetXForwardedHost().GetEnabled().GetValue() }

// ForwardsPort is described at ForwardsHost.
func (c *Config) ForwardsPort() bool { return c.headers().GetXForwardedPort().GetEnabled().GetValue() }

// AcceptsHTTP10 says whether listeners take HTTP/1.0. (Istio: enableHTTP10.)
func (c *Config) AcceptsHTTP10() bool {
	value := c.metadata(discovery.HTTP10Metadata)
	return value == "1" || strings.EqualFold(value, "true")
}

// IdleTimeout is how long connections to listeners may be idle, 0 for no limit. Nil leaves it to
// Envoy: an hour.
func (c *Config) IdleTimeout() *durationpb.Duration {
	d, err := time.ParseDuration(c.metadata(discovery.IdleTimeoutMetadata))
	if err != nil {
		return nil
	}
	return durationpb.New(d)
}

// metadata returns the metadata of a name that the proxyMetadata give to proxies.
func (c *Config) metadata(name string) string {
	return c.GetDefaultConfig().GetProxyMetadata()[discovery.MetadataVariable(name)]
}

// Connections are the connectionSettings, nil for none. Those of gateways have the defaults of the
// profile EDGE, if they have that. (Istio: applyEdgeProfileDefaults.)
func (c *Config) Connections(gateway bool) *meshv1alpha1.ProxyConfig_ConnectionSettings {
	set := c.GetDefaultConfig().GetConnectionSettings()
	if !gateway || set.GetProfile() != meshv1alpha1.ProxyConfig_ConnectionSettings_EDGE {
		return set
	}
	out := &meshv1alpha1.ProxyConfig_ConnectionSettings{
		ListenerPerConnectionBufferLimitBytes: wrapperspb.Int32(32 << 10),
		ClusterPerConnectionBufferLimitBytes:  wrapperspb.Int32(32 << 10),
		HttpIdleTimeout:                       durationpb.New(time.Hour),
		HttpRequestTimeout:                    durationpb.New(5 * time.Minute),
		HttpStreamIdleTimeout:                 durationpb.New(5 * time.Minute),
		HttpMaxConcurrentStreams:              wrapperspb.Int32(100),
		Http2InitialStreamWindowSize:          wrapperspb.Int32(64 << 10),
		Http2InitialConnectionWindowSize:      wrapperspb.Int32(1 << 20),
		HttpHeadersWithUnderscoresAction:      meshv1alpha1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST,
		HttpMergeSlashes:                      wrapperspb.Bool(true),
		HttpPathWithEscapedSlashesAction:      meshv1alpha1.ProxyConfig_ConnectionSettings_UNESCAPE_AND_REDIRECT,
	}
	replace(out, set)
	return out
}

// replace sets the fields of a message that another has, as they are there.
func replace(into, by proto.Message) {
	by.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		into.ProtoReflect().Set(field, value)
		return true
	})
}
