package bootstrap

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// metadataPrefix begins the variables of proxyMetadata that are metadata of the node.
const metadataPrefix = "ISTIO_META_"

// loads says whether a variable has the loader of the system, or that of Envoy's modules, take other
// code. Such variables are left out: who may write a ProxyConfig is not to run programs on machines.
func loads(name string) bool {
	return strings.HasPrefix(name, "LD_") || name == "ENVOY_DYNAMIC_MODULES_SEARCH_PATH"
}

// Environment returns the variables, NAME=VALUE in order, that an Envoy has by a ProxyConfig beside
// those of whoever starts it.
func Environment(p *meshv1alpha1.ProxyConfig) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(p.GetProxyMetadata())) {
		if !strings.HasPrefix(name, metadataPrefix) && !loads(name) {
			out = append(out, name+"="+p.GetProxyMetadata()[name])
		}
	}
	return out
}

// Arguments returns the arguments of Envoy's command line that a ProxyConfig sets, but for its times to
// drain. Those that args name already are left out.
func Arguments(p *meshv1alpha1.ProxyConfig, args []string) []string {
	var out []string
	set := func(name string, value int64) {
		if !slices.ContainsFunc(args, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") }) {
			out = append(out, name, strconv.FormatInt(value, 10))
		}
	}
	if n := p.GetConcurrency().GetValue(); n > 0 { // 0 means all cores, as Envoy has it by itself
		set("--concurrency", int64(n))
	}
	if d := p.GetFileFlushInterval(); d != nil {
		set("--file-flush-interval-msec", d.AsDuration().Milliseconds())
	}
	if kb := p.GetFileFlushMinSizeKb(); kb != 0 {
		set("--file-flush-min-size-kb", int64(kb))
	}
	return out
}

// DrainArguments returns the argument for the time that connections have which a changed listener or
// another Envoy has outdated; none if the ProxyConfig does not say.
func DrainArguments(p *meshv1alpha1.ProxyConfig) []string {
	if p.GetDrainDuration() == nil {
		return nil
	}
	return []string{"--drain-time-s", strconv.FormatInt(int64(p.GetDrainDuration().AsDuration()/time.Second), 10)}
}

// configMetadata adds to metadata what a ProxyConfig says. It leaves what is there.
func configMetadata(p *meshv1alpha1.ProxyConfig, metadata map[string]*structpb.Value) error {
	add := func(name string, value *structpb.Value) {
		if _, there := metadata[name]; !there {
			metadata[name] = value
		}
	}
	for variable, value := range p.GetProxyMetadata() {
		if name, ok := strings.CutPrefix(variable, metadataPrefix); ok && name != "" {
			add(name, structpb.NewStringValue(value))
		}
	}
	if p.GetMeshId() != "" {
		add("MESH_ID", structpb.NewStringValue(p.GetMeshId()))
	}
	stated := &meshv1alpha1.ProxyConfig{ProxyHeaders: p.GetProxyHeaders(), GatewayTopology: p.GetGatewayTopology(), ConnectionSettings: p.GetConnectionSettings()}
	if stated.GetProxyHeaders() == nil && stated.GetGatewayTopology() == nil && stated.GetConnectionSettings() == nil {
		return nil
	}
	raw, err := protojson.Marshal(stated)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	object, err := structpb.NewStruct(fields)
	if err == nil {
		add("PROXY_CONFIG", structpb.NewStructValue(object))
	}
	return err
}

// applyConfig sets what a ProxyConfig says of the bootstrap.
func applyConfig(p *meshv1alpha1.ProxyConfig, out *bootstrapv3.Bootstrap) {
	out.StatsConfig.StatsMatcher = statsMatcher(p.GetProxyStatsMatcher())
	layer := out.GetLayeredRuntime().GetLayers()[0].GetStaticLayer().GetFields()
	for name, value := range p.GetRuntimeValues() {
		layer[name] = structpb.NewStringValue(value)
	}
	if n := p.GetConnectionSettings().GetGlobalDownstreamConnectionLimit().GetValue(); n > 0 {
		out.OverloadManager = &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
			Name: "envoy.resource_monitors.global_downstream_max_connections",
			ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: message.Pack(&connectionsv3.DownstreamConnectionsConfig{
				MaxActiveDownstreamConnections: int64(n),
			})},
		}}}
	}
}

// The statistics that an Envoy keeps beside those that a ProxyConfig names: Istio's, and what the agent
// of a machine reads. (Istio: pkg/bootstrap/config.go.)
var (
	neededPrefixes = []string{"cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "istio"}
	neededSuffixes = []string{"rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied", "downstream_cx_active", "upstream_rq_active"}
)

// statsMatcher returns nil for all statistics.
func statsMatcher(m *meshv1alpha1.ProxyConfig_ProxyStatsMatcher) *metricsv3.StatsMatcher {
	if len(m.GetInclusionPrefixes())+len(m.GetInclusionSuffixes())+len(m.GetInclusionRegexps()) == 0 {
		return nil
	}
	list := &matcherv3.ListStringMatcher{}
	for _, prefix := range slices.Concat(neededPrefixes, m.GetInclusionPrefixes()) {
		list.Patterns = append(list.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}})
	}
	for _, suffix := range slices.Concat(neededSuffixes, m.GetInclusionSuffixes()) {
		list.Patterns = append(list.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix}})
	}
	for _, expression := range m.GetInclusionRegexps() {
		list.Patterns = append(list.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: expression}}})
	}
	return &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: list}}
}
