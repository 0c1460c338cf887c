// Package tracing makes what connection managers need to report spans.
package tracing

import (
	"cmp"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	samplersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	tagsv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

type (
	provider   = meshv1alpha1.MeshConfig_ExtensionProvider
	httpHeader = meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader
)

// timeout is how long a proxy waits for a collector over HTTP that sets no timeout. (Istio: tracing.go.)
const timeout = 5 * time.Second

// Place is where a service is: its host, and the cluster that leads there.
type Place struct{ Host, Cluster string }

// Options describe how the requests of a connection manager are traced.
type Options struct {
	// Provider is one of zipkin, datadog, skywalking and opentelemetry.
	Provider *provider
	// Collector is where the spans go, and Sampler where the sampler of Dynatrace asks, if it has a
	// service of its own.
	Collector, Sampler Place
	// Service names the proxy's service, where the driver does not take it from the node.
	Service string
	// Sampling is the percentage of requests that are traced if nobody has decided before. A sampler
	// of the provider decides instead.
	Sampling float64
	// Tags are added to each span, in their order.
	Tags []*tagsv3.CustomTag
	// MaxPathLength cuts the path in the tag of the URL; 0 is Envoy's 256. That of the provider
	// comes first.
	MaxPathLength uint32
	// Isolated: requests go on without the headers of the trace.
	Isolated bool
	// Independent: the proxy is a hop of its own, with a span for each request upstream.
	Independent bool
}

// New makes the tracing of a connection manager. A span is named after the host of the request, as
// HOST/*. (Istio: configureTracingFromTelemetry.)
func New(o Options) *hcmv3.HttpConnectionManager_Tracing {
	d := o.driver()
	out := &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling: &typev3.Percent{Value: 100}, OverallSampling: &typev3.Percent{Value: 100}, RandomSampling: &typev3.Percent{Value: o.Sampling},
		CustomTags: o.Tags, NoContextPropagation: o.Isolated, Operation: "%REQ(:AUTHORITY)%/*",
		Provider: &tracev3.Tracing_Http{Name: d.name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: message.Pack(d.config)}},
	}
	out.MaxPathTagLength = message.Count(cmp.Or(d.maxLength, o.MaxPathLength))
	if o.Independent || d.independent {
		out.SpawnUpstreamSpan = wrapperspb.Bool(true)
	}
	if d.samples {
		out.RandomSampling.Value = 100
	}
	return out
}

// driver is what reports the spans.
type driver struct {
	name      string
	config    proto.Message
	maxLength uint32
	// independent: the driver needs a span for each request upstream. samples: it decides itself.
	independent, samples bool
}

func (o Options) driver() driver {
	switch p := o.Provider; {
	case p.GetZipkin() != nil:
		return driver{name: "envoy.tracers.zipkin", config: o.zipkin(), maxLength: p.GetZipkin().GetMaxTagLength()}
	case p.GetDatadog() != nil:
		return driver{name: "envoy.tracers.datadog", maxLength: p.GetDatadog().GetMaxTagLength(), config: &tracev3.DatadogConfig{
			CollectorCluster: o.Collector.Cluster, CollectorHostname: o.Collector.Host, ServiceName: o.Service,
		}}
	case p.GetSkywalking() != nil:
		config := &tracev3.SkyWalkingConfig{GrpcService: GRPC(o.Collector, nil, nil)}
		if token := p.GetSkywalking().GetAccessToken(); token != "" {
			config.ClientConfig = &tracev3.ClientConfig{BackendTokenSpecifier: &tracev3.ClientConfig_BackendToken{BackendToken: token}}
		}
		return driver{name: "envoy.tracers.skywalking", config: config, independent: true}
	default:
		config := o.openTelemetry()
		return driver{name: "envoy.tracers.opentelemetry", config: config, maxLength: p.GetOpentelemetry().GetMaxTagLength(), samples: config.GetSampler() != nil}
	}
}

func (o Options) zipkin() *tracev3.ZipkinConfig {
	z := o.Provider.GetZipkin()
	out := &tracev3.ZipkinConfig{
		CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON,
		TraceId_128Bit:           !z.GetEnable_64BitTraceId(),
		SharedSpanContext:        wrapperspb.Bool(false),
		CollectorService:         http(o.Collector, cmp.Or(z.GetPath(), "/api/v2/spans"), z.GetTimeout(), z.GetHeaders()),
	}
	if z.GetTraceContextOption() == meshv1alpha1.MeshConfig_ExtensionProvider_ZipkinTracingProvider_USE_B3_WITH_W3C_PROPAGATION {
		out.TraceContextOption = tracev3.ZipkinConfig_USE_B3_WITH_W3C_PROPAGATION
	}
	return out
}

func (o Options) openTelemetry() *tracev3.OpenTelemetryConfig {
	p := o.Provider.GetOpentelemetry()
	out := &tracev3.OpenTelemetryConfig{ServiceName: o.Service}
	if h := p.GetHttp(); h != nil {
		out.HttpService = http(o.Collector, h.GetPath(), h.GetTimeout(), h.GetHeaders())
	} else {
		out.GrpcService = GRPC(o.Collector, p.GetGrpc().GetTimeout(), p.GetGrpc().GetInitialMetadata())
	}
	if p.GetResourceDetectors().GetEnvironment() != nil {
		out.ResourceDetectors = append(out.ResourceDetectors, extension("envoy.tracers.opentelemetry.resource_detectors.environment", &detectorsv3.EnvironmentResourceDetectorConfig{}))
	}
	if p.GetResourceDetectors().GetDynatrace() != nil {
		out.ResourceDetectors = append(out.ResourceDetectors, extension("envoy.tracers.opentelemetry.resource_detectors.dynatrace", &detectorsv3.DynatraceResourceDetectorConfig{}))
	}
	if d := p.GetDynatraceSampler(); d != nil {
		asks := http(o.Collector, "/api/v2/samplingConfiguration", p.GetHttp().GetTimeout(), p.GetHttp().GetHeaders())
		if h := d.GetHttpService().GetHttp(); h != nil {
			asks = http(o.Sampler, h.GetPath(), h.GetTimeout(), h.GetHeaders())
		}
		out.Sampler = extension("envoy.tracers.opentelemetry.samplers.dynatrace", &samplersv3.DynatraceSamplerConfig{
			Tenant: d.GetTenant(), ClusterId: d.GetClusterId(), RootSpansPerMinute: d.GetRootSpansPerMinute(), HttpService: asks,
		})
	}
	return out
}

func extension(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: message.Pack(config)}
}

// GRPC names a service that is called over gRPC.
func GRPC(to Place, timeout *durationpb.Duration, headers []*httpHeader) *corev3.GrpcService {
	out := &corev3.GrpcService{Timeout: timeout, TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
		ClusterName: to.Cluster, Authority: to.Host,
	}}}
	for _, h := range headers {
		out.InitialMetadata = append(out.InitialMetadata, &corev3.HeaderValue{Key: h.GetName(), Value: h.GetValue()})
	}
	return out
}

// http names a service that is called over HTTP.
func http(to Place, path string, within *durationpb.Duration, headers []*httpHeader) *corev3.HttpService {
	if within == nil {
		within = durationpb.New(timeout)
	}
	out := &corev3.HttpService{HttpUri: &corev3.HttpUri{
		Uri: "http://" + to.Host + path, Timeout: within, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: to.Cluster},
	}}
	for _, h := range headers {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: h.GetName(), Value: h.GetValue()}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return out
}
