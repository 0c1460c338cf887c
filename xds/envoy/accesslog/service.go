package accesslog

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	reqwithoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	otlpv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// The names of logs whose providers set none. (Istio: telemetry_logging.go.)
const (
	httpLogName = "http_envoy_accesslog"
	tcpLogName  = "tcp_envoy_accesslog"
	otelLogName = "otel_envoy_accesslog"
)

// OfFile makes the access log of a provider that writes to a file.
func OfFile(p *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider, f Filter) *accesslogv3.AccessLog {
	o := Options{Path: cmp.Or(p.GetPath(), "/dev/stdout"), Format: p.GetLogFormat().GetText(), OmitEmpty: p.GetOmitEmptyValues()}
	if labels := p.GetLogFormat().GetLabels(); labels != nil {
		if o.JSON = labels; len(labels.GetFields()) == 0 {
			o.JSON = JSONFormat("")
		}
	}
	return New(o, f)
}

// ToService makes the access log of a provider that speaks Envoy's access log service about requests.
func ToService(p *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider, to *corev3.GrpcService, f Filter) *accesslogv3.AccessLog {
	return accessLog("envoy.access_loggers.http_grpc", &grpcv3.HttpGrpcAccessLogConfig{
		CommonConfig:                    common(cmp.Or(p.GetLogName(), httpLogName), to, p.GetFilterStateObjectsToLog()),
		AdditionalRequestHeadersToLog:   p.GetAdditionalRequestHeadersToLog(),
		AdditionalResponseHeadersToLog:  p.GetAdditionalResponseHeadersToLog(),
		AdditionalResponseTrailersToLog: p.GetAdditionalResponseTrailersToLog(),
	}, f)
}

// ToTCPService makes the access log of a provider that speaks Envoy's access log service about
// connections.
func ToTCPService(p *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyTcpGrpcV3LogProvider, to *corev3.GrpcService, f Filter) *accesslogv3.AccessLog {
	return accessLog("envoy.access_loggers.tcp_grpc", &grpcv3.TcpGrpcAccessLogConfig{
		CommonConfig: common(cmp.Or(p.GetLogName(), tcpLogName), to, p.GetFilterStateObjectsToLog()),
	}, f)
}

func common(name string, to *corev3.GrpcService, states []string) *grpcv3.CommonGrpcAccessLogConfig {
	return &grpcv3.CommonGrpcAccessLogConfig{LogName: name, GrpcService: to, TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: states}
}

// ToCollector makes the access log of a provider that speaks OpenTelemetry's protocol of logs.
func ToCollector(p *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider, to *corev3.GrpcService, f Filter) *accesslogv3.AccessLog {
	text, labels := cmp.Or(p.GetLogFormat().GetText(), TextFormat), p.GetLogFormat().GetLabels()
	out := &otelv3.OpenTelemetryAccessLogConfig{
		GrpcService: to, LogName: cmp.Or(p.GetLogName(), otelLogName), DisableBuiltinLabels: true,
		Body: textValue(text), Formatters: queryless(text, labels),
	}
	if len(labels.GetFields()) > 0 {
		out.Attributes = &otlpv1.KeyValueList{}
		for _, name := range slices.Sorted(maps.Keys(labels.GetFields())) {
			out.Attributes.Values = append(out.Attributes.Values, &otlpv1.KeyValue{Key: name, Value: textValue(labels.GetFields()[name].GetStringValue())})
		}
	}
	return accessLog("envoy.access_loggers.open_telemetry", out, f)
}

func textValue(text string) *otlpv1.AnyValue {
	return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: text}}
}

// formatters returns the extensions that a format needs.
func formatters(f *corev3.SubstitutionFormatString) []*corev3.TypedExtensionConfig {
	return queryless(f.GetTextFormatSource().GetInlineString(), f.GetJsonFormat())
}

// queryless returns the extension for REQ_WITHOUT_QUERY, if a format has it.
func queryless(text string, labels *structpb.Struct) []*corev3.TypedExtensionConfig {
	const command = "%REQ_WITHOUT_QUERY("
	if !strings.Contains(text, command) && !strings.Contains(labels.String(), command) {
		return nil
	}
	return []*corev3.TypedExtensionConfig{{Name: "envoy.formatter.req_without_query", TypedConfig: message.Pack(&reqwithoutqueryv3.ReqWithoutQuery{})}}
}
