package bootstrap

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/names"
)

// XDSClusterName is the cluster for the control plane.
const XDSClusterName = names.XDSCluster

const (
	// Envoy notices a control plane that vanished without closing the connection after
	// the sum of both.
	pingInterval = 30 * time.Second
	pingTimeout  = 10 * time.Second
	// maxRegexProgram is Istio's limit. Envoy's own limit of 100 refuses expressions that
	// validation accepts.
	// https://github.com/istio/istio/pull/26153
	maxRegexProgram = 32768
)

// Build makes the bootstrap. The error names all faults of the options.
func Build(o Options) (*bootstrapv3.Bootstrap, error) {
	o = o.withDefaults()
	if err := o.validate(node.Sidecar, node.Router); err != nil {
		return nil, err
	}
	out := &bootstrapv3.Bootstrap{
		Node:            o.node(),
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{o.xdsCluster()}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: o.adsConfig(),
			CdsConfig: message.ADS(),
			LdsConfig: message.ADS(),
		},
		StatsConfig: statsConfig(),
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "static",
			LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
				"re2.max_program_size.error_level": structpb.NewNumberValue(maxRegexProgram),
			}}},
		}}},
	}
	applyConfig(o.Config, out)
	if err := configMetadata(o.Config, out.Node.Metadata.Fields); err != nil {
		return nil, fmt.Errorf("the ProxyConfig: %w", err)
	}
	if o.SDSSocket != "" {
		out.StaticResources.Clusters = append(out.StaticResources.Clusters, o.sdsCluster())
	}
	if err := o.addStatsSinks(out); err != nil {
		return nil, fmt.Errorf("the ProxyConfig: %w", err)
	}
	if o.SelfDiscovery {
		out.ClusterManager = &bootstrapv3.ClusterManager{LocalClusterName: names.LocalCluster}
		out.StaticResources.Clusters = append(out.StaticResources.Clusters, upstream.Cluster(upstream.ClusterOptions{
			Name: names.LocalCluster, Type: upstream.EDS, ConnectTimeout: o.ConnectTimeout,
		}))
	}
	if o.AdminAddress != AdminOff {
		out.Admin = &bootstrapv3.Admin{Address: address(o.AdminAddress)}
	}
	return out, nil
}

// node makes the node that discovery.ParseProxy parses.
func (o Options) node() *corev3.Node {
	kind := o.Type
	if kind == node.Proxyless { // the metadata says that it is proxyless
		kind = node.Sidecar
	}
	out := &corev3.Node{
		Id:       strings.Join([]string{string(kind), o.IPs[0], o.Name + "." + o.Namespace, o.Namespace + ".svc." + o.Domain}, "~"),
		Cluster:  o.Cluster,
		Metadata: &structpb.Struct{Fields: o.metadata()},
	}
	if o.Locality != "" {
		out.Locality = upstream.Locality(o.Locality)
	}
	return out
}

func (o Options) metadata() map[string]*structpb.Value {
	out := map[string]*structpb.Value{}
	for name, value := range map[string]string{
		"NAME":                o.Name,
		"NAMESPACE":           o.Namespace,
		"INSTANCE_IPS":        strings.Join(o.IPs, ","),
		"ISTIO_VERSION":       o.IstioVersion,
		"SERVICE_ACCOUNT":     o.ServiceAccount,
		"AUTO_REGISTER_GROUP": o.WorkloadGroup,
		"CLUSTER_ID":          o.ClusterID,
		"NETWORK":             o.Network,
		"INTERCEPTION_MODE":   string(o.InterceptionMode),
		"SYSTEM_ROOTS":        o.SystemRoots,
	} {
		if value != "" {
			out[name] = structpb.NewStringValue(value)
		}
	}
	if o.Type == node.Proxyless {
		out["GENERATOR"] = structpb.NewStringValue(string(node.Proxyless))
	}
	if o.SDSSocket != "" {
		out["SDS_CLUSTER"] = structpb.NewStringValue(SDSClusterName)
	}
	if o.DNSCapture {
		out["DNS_CAPTURE"] = structpb.NewStringValue("true")
	}
	if o.SelfDiscovery {
		out["ENABLE_SELF_DISCOVERY"] = structpb.NewStringValue("true")
	}
	if o.HTTPProxyPort != 0 {
		out["HTTP_PROXY_PORT"] = structpb.NewStringValue(strconv.Itoa(int(o.HTTPProxyPort)))
	}
	for _, file := range o.certificateFiles() {
		if file.path != "" { // one certificate, for the connections that it makes and those that it takes
			out["TLS_CLIENT_"+file.key] = structpb.NewStringValue(file.path)
			out["TLS_SERVER_"+file.key] = structpb.NewStringValue(file.path)
		}
	}
	if len(o.Labels) > 0 {
		out["LABELS"] = structpb.NewStructValue(textStruct(o.Labels))
	}
	return out
}

func textStruct(in labels.Instance) *structpb.Struct {
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(in))}
	for k, v := range in {
		out.Fields[k] = structpb.NewStringValue(v)
	}
	return out
}

func (o Options) adsConfig() *corev3.ApiConfigSource {
	kind := corev3.ApiConfigSource_DELTA_GRPC
	if o.StateOfTheWorld {
		kind = corev3.ApiConfigSource_GRPC
	}
	return &corev3.ApiConfigSource{
		ApiType:                   kind,
		TransportApiVersion:       corev3.ApiVersion_V3,
		SetNodeOnFirstMessageOnly: true,
		GrpcServices:              []*corev3.GrpcService{message.GRPCService(XDSClusterName)},
	}
}

// xdsCluster makes the cluster for the control plane. Its endpoints are the servers'
// addresses, or all addresses of their host names.
func (o Options) xdsCluster() *clusterv3.Cluster {
	var endpoints []upstream.Endpoint
	kind := upstream.Static
	for _, address := range o.XDSAddresses {
		endpoint := upstream.Endpoint{Host: address}
		if !names.IsUnix(address) {
			endpoint.Host, endpoint.Port, _ = hostPort(address) // validated
			if _, err := netip.ParseAddr(endpoint.Host); err != nil {
				kind = upstream.StrictDNS
			}
		}
		endpoints = append(endpoints, endpoint)
	}
	return upstream.Cluster(upstream.ClusterOptions{
		Name:           XDSClusterName,
		Type:           kind,
		ConnectTimeout: o.ConnectTimeout,
		Transport:      o.serverTLS(),
		DNS:            upstream.DNSOptions{Family: upstream.DNSAll},
		Endpoints:      []upstream.Endpoints{{Endpoints: endpoints}},
		LoadBalancer:   upstream.LoadBalancer{Policy: upstream.RoundRobin},
		HTTP:           &upstream.HTTP{Protocol: upstream.HTTP2, PingInterval: pingInterval, PingTimeout: pingTimeout},
	})
}

// SDSClusterName is the cluster for the certificates of the proxy's machine. (Istio's bootstrap has
// the same.)
const SDSClusterName = names.SDSCluster

// sdsCluster makes the cluster for what serves certificates on the proxy's machine.
func (o Options) sdsCluster() *clusterv3.Cluster {
	return upstream.Cluster(upstream.ClusterOptions{
		Name: SDSClusterName, Type: upstream.Static, ConnectTimeout: o.ConnectTimeout,
		Endpoints: []upstream.Endpoints{{Endpoints: []upstream.Endpoint{{Host: "unix://" + o.SDSSocket}}}},
		HTTP:      &upstream.HTTP{Protocol: upstream.HTTP2},
	})
}

func address(s string) *corev3.Address {
	host, port, _ := hostPort(s) // validated
	return message.Address(host, port)
}

// statsConfig extracts the names of clusters and listeners from statistics into labels
// with Istio's names. Such a name ends at its semicolon.
func statsConfig() *metricsv3.StatsConfig {
	out := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	for _, tag := range []struct{ name, regex string }{
		{"cluster_name", `^cluster\.((.+?);\.)`},
		{"tcp_prefix", `^tcp\.((.+?);?\.)\w+?$`},
		{"http_conn_manager_prefix", `^http\.((.+?);\.)`},
		{"listener_address", `^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
		{"response_code", `_rq(_(\d{3}))$`},
		{"response_code_class", `_rq(_(\dxx))$`},
	} {
		out.StatsTags = append(out.StatsTags, &metricsv3.TagSpecifier{
			TagName: tag.name, TagValue: &metricsv3.TagSpecifier_Regex{Regex: tag.regex},
		})
	}
	return out
}
