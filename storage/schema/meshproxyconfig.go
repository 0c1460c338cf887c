package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
)

// ProxyConfigAnnotation is the annotation in the metadata of a WorkloadGroup's spec that has a
// mesh ProxyConfig in YAML, for the machines of the group. (Istio has it for pods and machines.)
const ProxyConfigAnnotation = "proxy.istio.io/config"

// The fields of the mesh's ProxyConfig that have an effect, by message.
var proxyConfigServed = map[protoreflect.Name]map[protoreflect.Name]bool{
	"ProxyConfig": {
		"service_cluster": true, "drain_duration": true, "concurrency": true, "proxy_metadata": true, "runtime_values": true,
		"gateway_topology": true, "termination_drain_duration": true, "mesh_id": true, "proxy_stats_matcher": true,
		"hold_application_until_proxy_starts": true, "proxy_headers": true, "file_flush_interval": true, "file_flush_min_size_kb": true,
		"connection_settings": true,
	},
	"Topology": {"num_trusted_proxies": true, "forward_client_cert_details": true, "proxy_protocol": true},
	"ProxyHeaders": {
		"forwarded_client_cert": true, "set_current_client_cert_details": true, "request_id": true, "server": true, "attempt_count": true,
		"envoy_debug_headers": true, "preserve_http1_header_case": true, "x_forwarded_host": true, "x_forwarded_port": true,
	},
	"ConnectionSettings": {
		"profile": true, "listener_per_connection_buffer_limit_bytes": true, "cluster_per_connection_buffer_limit_bytes": true,
		"http_idle_timeout": true, "http_max_connection_duration": true, "http_drain_timeout": true, "http_request_timeout": true,
		"http_request_headers_timeout": true, "http_stream_idle_timeout": true, "http_max_stream_duration": true,
		"http_max_concurrent_streams": true, "http2_initial_stream_window_size": true, "http2_initial_connection_window_size": true,
		"http_headers_with_underscores_action": true, "http_merge_slashes": true, "http_path_with_escaped_slashes_action": true,
		"global_downstream_connection_limit": true,
	},
}

// proxyConfigIdle says of fields of the mesh's ProxyConfig why they have no effect on machines.
var proxyConfigIdle = map[protoreflect.Name]string{
	"config_path":                   "each machine says where its files are: run in the file of its agent",
	"binary_path":                   "each machine says where its Envoy is: envoy.path in the file of its agent",
	"discovery_address":             "each proxy is told its servers when its bootstrap is made",
	"proxy_admin_port":              "each machine says where its Envoy has its interface: envoy.admin in the file of its agent, or portolan bootstrap --admin-address",
	"status_port":                   "each machine says where its agent listens: metrics and ready in the file of its agent",
	"custom_config_file":            "an Envoy with a bootstrap of your own is one that the agent does not run: portolan-agent run --no-envoy",
	"proxy_bootstrap_template_path": "an Envoy with a bootstrap of your own is one that the agent does not run: portolan-agent run --no-envoy",
	"stat_name_length":              "Envoy does not limit the length of names",
	"interception_mode":             "each machine says how its traffic is captured: capture in the file of its agent",
	"control_plane_auth_policy":     "each proxy is told how it connects when its bootstrap is made",
	"readiness_probe":               "it is a field of WorkloadGroup: spec.probe",
	"image":                         "machines have no container image",
	"private_key_provider":          "a stock Envoy has no provider of private keys",
	"extra_stat_tags":               "it is deprecated, and proxies put no tags into the names of statistics",
	"sds":                           "it is deprecated",
	"metadata_exchange_headers":     "proxies exchange no metadata in headers",
	"listener_connection_limit":     "it needs the names of listeners before a server sends them: use globalDownstreamConnectionLimit",
}

// loaderPrefix begins the variables that agents leave out, and loaderIdle says why.
const (
	loaderPrefix = "LD_"
	loaderIdle   = "has no effect: variables of the system's loader have programs run other code, which is for the people of the machine"
)

// UnservedProxyConfig returns, in order, warnings of the fields of a mesh ProxyConfig that are set and
// have no effect. path leads to it.
func UnservedProxyConfig(path string, p *meshv1alpha1.ProxyConfig) []string {
	out := slices.Concat(
		idleFields(path, p),
		idleFields(path+".gatewayTopology", p.GetGatewayTopology()),
		idleFields(path+".proxyHeaders", p.GetProxyHeaders()),
		idleFields(path+".connectionSettings", p.GetConnectionSettings()),
		idleCertDetails(path, p.GetProxyHeaders()),
	)
	for _, name := range slices.Sorted(maps.Keys(p.GetProxyMetadata())) {
		if strings.HasPrefix(name, loaderPrefix) {
			out = append(out, fmt.Sprintf("%s.proxyMetadata[%s] %s", path, name, loaderIdle))
		}
	}
	if hold := p.GetHoldApplicationUntilProxyStarts(); hold != nil && !hold.GetValue() {
		out = append(out, path+".holdApplicationUntilProxyStarts has no effect as false: a unit that is ordered after the agent's starts when the proxy is ready; leave its order out instead")
	}
	return out
}

func idleFields(path string, m proto.Message) []string {
	var out []string
	message := m.ProtoReflect()
	served := proxyConfigServed[message.Descriptor().Name()]
	message.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		switch why := proxyConfigIdle[field.Name()]; {
		case served[field.Name()]:
		case why != "":
			out = append(out, fmt.Sprintf("%s.%s has no effect: %s", path, field.JSONName(), why))
		default:
			out = append(out, fmt.Sprintf("%s.%s is not served yet and has no effect", path, field.JSONName()))
		}
		return true
	})
	slices.Sort(out)
	return out
}

// idleCertDetails warns of parts of certificates where sidecars write no certificate.
func idleCertDetails(path string, h *meshv1alpha1.ProxyConfig_ProxyHeaders) []string {
	if h.GetSetCurrentClientCertDetails() == nil {
		return nil
	}
	switch mode := h.GetForwardedClientCert(); mode {
	case meshv1alpha1.ForwardClientCertDetails_UNDEFINED, meshv1alpha1.ForwardClientCertDetails_APPEND_FORWARD, meshv1alpha1.ForwardClientCertDetails_SANITIZE_SET:
		return nil
	default:
		return []string{fmt.Sprintf("%s.proxyHeaders.setCurrentClientCertDetails has no effect with the mode %s: it is for APPEND_FORWARD and SANITIZE_SET", path, mode)}
	}
}

// CheckProxyConfig returns all faults of a mesh ProxyConfig, nil for none. path leads to it.
func CheckProxyConfig(path string, p *meshv1alpha1.ProxyConfig) error {
	f := &proxyConfigFaults{path: path}
	f.known("gatewayTopology.forwardClientCertDetails", p.GetGatewayTopology().GetForwardClientCertDetails(), meshv1alpha1.ForwardClientCertDetails_name, "SANITIZE, FORWARD_ONLY, APPEND_FORWARD, SANITIZE_SET or ALWAYS_FORWARD_ONLY")
	f.known("proxyHeaders.forwardedClientCert", p.GetProxyHeaders().GetForwardedClientCert(), meshv1alpha1.ForwardClientCertDetails_name, "SANITIZE, FORWARD_ONLY, APPEND_FORWARD, SANITIZE_SET or ALWAYS_FORWARD_ONLY")
	if value := p.GetProxyHeaders().GetServer().GetValue(); strings.ContainsAny(value, "\r\n\x00") {
		f.add("proxyHeaders.server.value", "must be in one line, is %q", value)
	}
	f.number("concurrency", p.GetConcurrency(), 0)
	f.least("drainDuration", p.GetDrainDuration(), time.Second)
	f.least("terminationDrainDuration", p.GetTerminationDrainDuration(), 0)
	f.least("fileFlushInterval", p.GetFileFlushInterval(), time.Millisecond)
	for name := range p.GetProxyMetadata() {
		if name == "" || strings.ContainsAny(name, "= \x00") {
			f.add("proxyMetadata", "%q is no name of a variable", name)
		}
	}
	for name := range p.GetRuntimeValues() {
		if name == "" {
			f.add("runtimeValues", "a value has no name: give that of a setting of Envoy's runtime")
		}
	}
	for i, expression := range p.GetProxyStatsMatcher().GetInclusionRegexps() {
		if _, err := regexp.Compile(expression); err != nil {
			f.add(fmt.Sprintf("proxyStatsMatcher.inclusionRegexps[%d]", i), "%q is no regular expression (RE2): %v", expression, err)
		}
	}
	f.connections(p.GetConnectionSettings())
	if f.all != nil {
		slices.SortFunc(f.all.Errors, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	}
	return f.all.ErrorOrNil()
}

// proxyConfigFaults collects the faults of a mesh ProxyConfig.
type proxyConfigFaults struct {
	path string
	all  *multierror.Error
}

func (f *proxyConfigFaults) add(field, format string, args ...any) {
	f.all = multierror.Append(f.all, fmt.Errorf("%s.%s: "+format, append([]any{f.path, field}, args...)...))
}

// least demands a duration of at least some length, if it is set.
func (f *proxyConfigFaults) least(field string, d *durationpb.Duration, least time.Duration) {
	if d != nil && (d.CheckValid() != nil || d.AsDuration() < least) {
		f.add(field, "must be at least %s, is %s", least, d.AsDuration())
	}
}

// number demands a number of at least some size, if it is set.
func (f *proxyConfigFaults) number(field string, n *wrapperspb.Int32Value, least int32) {
	if n != nil && n.GetValue() < least {
		f.add(field, "must be at least %d, is %d", least, n.GetValue())
	}
}

// known demands a value of an enumeration that its names have.
func (f *proxyConfigFaults) known(field string, value protoreflect.Enum, names map[int32]string, use string) {
	if _, ok := names[int32(value.Number())]; !ok {
		f.add(field, "%d is unknown: use %s", value.Number(), use)
	}
}

// leastWindow is the window that HTTP/2 begins with (RFC 9113, section 6.9.2), and Envoy's least.
const leastWindow = 65535

func (f *proxyConfigFaults) connections(c *meshv1alpha1.ProxyConfig_ConnectionSettings) {
	const at = "connectionSettings."
	for field, n := range map[string]*wrapperspb.Int32Value{
		"listenerPerConnectionBufferLimitBytes": c.GetListenerPerConnectionBufferLimitBytes(),
		"clusterPerConnectionBufferLimitBytes":  c.GetClusterPerConnectionBufferLimitBytes(),
		"httpMaxConcurrentStreams":              c.GetHttpMaxConcurrentStreams(),
		"globalDownstreamConnectionLimit":       c.GetGlobalDownstreamConnectionLimit(),
	} {
		f.number(at+field, n, 1)
	}
	f.number(at+"http2InitialStreamWindowSize", c.GetHttp2InitialStreamWindowSize(), leastWindow)
	f.number(at+"http2InitialConnectionWindowSize", c.GetHttp2InitialConnectionWindowSize(), leastWindow)
	for field, d := range map[string]*durationpb.Duration{
		"httpIdleTimeout": c.GetHttpIdleTimeout(), "httpMaxConnectionDuration": c.GetHttpMaxConnectionDuration(), "httpDrainTimeout": c.GetHttpDrainTimeout(),
		"httpRequestTimeout": c.GetHttpRequestTimeout(), "httpRequestHeadersTimeout": c.GetHttpRequestHeadersTimeout(),
		"httpStreamIdleTimeout": c.GetHttpStreamIdleTimeout(), "httpMaxStreamDuration": c.GetHttpMaxStreamDuration(),
	} {
		f.least(at+field, d, 0)
	}
	f.known(at+"profile", c.GetProfile(), meshv1alpha1.ProxyConfig_ConnectionSettings_Profile_name, "SIDECAR or EDGE")
	f.known(at+"httpHeadersWithUnderscoresAction", c.GetHttpHeadersWithUnderscoresAction(), meshv1alpha1.ProxyConfig_ConnectionSettings_HeadersWithUnderscoresAction_name,
		"HEADERS_WITH_UNDERSCORES_ALLOW, HEADERS_WITH_UNDERSCORES_REJECT_REQUEST or HEADERS_WITH_UNDERSCORES_DROP_HEADER")
	f.known(at+"httpPathWithEscapedSlashesAction", c.GetHttpPathWithEscapedSlashesAction(), meshv1alpha1.ProxyConfig_ConnectionSettings_PathWithEscapedSlashesAction_name,
		"KEEP_UNCHANGED, REJECT_REQUEST, UNESCAPE_AND_REDIRECT or UNESCAPE_AND_FORWARD")
}

// ProxyConfigOf returns the mesh ProxyConfig in annotations of a WorkloadGroup's spec, nil if they
// have none. The error says what is wrong with it.
func ProxyConfigOf(annotations map[string]string) (*meshv1alpha1.ProxyConfig, error) {
	text := annotations[ProxyConfigAnnotation]
	if text == "" {
		return nil, nil
	}
	out := &meshv1alpha1.ProxyConfig{}
	if err := config.DecodeMessage("proxyConfig", []byte(text), out); err != nil {
		return nil, err
	}
	return out, CheckProxyConfig("proxyConfig", out)
}
