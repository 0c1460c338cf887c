// Package accesslog makes the access logs of listeners and filters.
package accesslog

import (
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	fileaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// TextFormat is Istio's access log format, one line per request.
const TextFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% ` +
	`%PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
	`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ` +
	`"%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% ` +
	`%DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" ` +
	`"%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" ` +
	`%UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% ` +
	`%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%` + "\n"

// Options describe an access log.
type Options struct {
	Path string // file path; /dev/stdout for the process's output
	// Format is the text format, TextFormat if empty. A missing newline is added.
	Format string
	// JSON, if not nil, logs JSON objects with these fields instead of text.
	JSON *structpb.Struct
	// OmitEmpty leaves out what has no value: the fields of JSON, and "-" in text.
	OmitEmpty bool
}

// Filter says what an access log records.
type Filter struct {
	// NoRoute records only connections and requests without a matching filter chain or
	// route. A listener must log only these, since no filter sees them.
	NoRoute bool
	// Event is what is recorded of a connection.
	Event Event
	// CEL is an expression that must be true; empty for none.
	CEL string
}

// Event is something in the life of a connection.
type Event int

// The events. A TCP proxy tells of Opened only if it is asked to.
const (
	Any    Event = iota
	Opened       // the connection upstream is there
	Ended        // any other
)

// New makes an access log that writes to a file.
func New(o Options, f Filter) *accesslogv3.AccessLog {
	format := o.format()
	format.OmitEmptyValues, format.Formatters = o.OmitEmpty, formatters(format)
	return accessLog("envoy.access_loggers.file", &fileaccesslogv3.FileAccessLog{
		Path:            o.Path,
		AccessLogFormat: &fileaccesslogv3.FileAccessLog_LogFormat{LogFormat: format},
	}, f)
}

// accessLog makes an access log.
func accessLog(name string, config proto.Message, f Filter) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: name, Filter: f.message(), ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: message.Pack(config)}}
}

// message returns the filter, nil for one that records all.
func (f Filter) message() *accesslogv3.AccessLogFilter {
	var all []*accesslogv3.AccessLogFilter
	if f.NoRoute {
		all = append(all, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
		}})
	}
	if f.Event != Any {
		all = append(all, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_LogTypeFilter{LogTypeFilter: &accesslogv3.LogTypeFilter{
			Types: []accesslogdatav3.AccessLogType{accesslogdatav3.AccessLogType_TcpUpstreamConnected}, Exclude: f.Event == Ended,
		}}})
	}
	if f.CEL != "" {
		all = append(all, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
			ExtensionFilter: &accesslogv3.ExtensionFilter{
				Name:       "envoy.access_loggers.extension_filters.cel",
				ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: message.Pack(&celv3.ExpressionFilter{Expression: f.CEL})},
			},
		}})
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{AndFilter: &accesslogv3.AndFilter{Filters: all}}}
}

func (o Options) format() *corev3.SubstitutionFormatString {
	if o.JSON != nil {
		return &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: o.JSON}}
	}
	format := o.Format
	if format == "" {
		format = TextFormat
	}
	if !strings.HasSuffix(format, "\n") {
		format += "\n"
	}
	return &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: format},
		}},
	}
}

// IsJSON says whether a text may be the format of a JSON log: a JSON object, or empty.
func IsJSON(text string) bool {
	return text == "" || protojson.Unmarshal([]byte(text), &structpb.Struct{}) == nil
}

// JSONFormat parses the fields of a JSON log from the text of a JSON object. If the text
// is empty or invalid, it returns Istio's fields.
func JSONFormat(text string) *structpb.Struct {
	fields := &structpb.Struct{}
	if text != "" && protojson.Unmarshal([]byte(text), fields) == nil {
		return fields
	}
	fields = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, f := range [][2]string{
		{"start_time", "%START_TIME%"},
		{"route_name", "%ROUTE_NAME%"},
		{"method", "%REQ(:METHOD)%"},
		{"path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"},
		{"protocol", "%PROTOCOL%"},
		{"response_code", "%RESPONSE_CODE%"},
		{"response_flags", "%RESPONSE_FLAGS%"},
		{"response_code_details", "%RESPONSE_CODE_DETAILS%"},
		{"connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"},
		{"upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"},
		{"bytes_received", "%BYTES_RECEIVED%"},
		{"bytes_sent", "%BYTES_SENT%"},
		{"duration", "%DURATION%"},
		{"upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"},
		{"x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"},
		{"user_agent", "%REQ(USER-AGENT)%"},
		{"request_id", "%REQ(X-REQUEST-ID)%"},
		{"authority", "%REQ(:AUTHORITY)%"},
		{"upstream_host", "%UPSTREAM_HOST%"},
		{"upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"},
		{"upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"},
		{"downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"},
		{"downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"},
		{"requested_server_name", "%REQUESTED_SERVER_NAME%"},
	} {
		fields.Fields[f[0]] = structpb.NewStringValue(f[1])
	}
	return fields
}
