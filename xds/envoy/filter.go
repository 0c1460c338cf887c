package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/names"
)

// ServerName is the value of the header "server" of inbound listeners and gateways.
const ServerName = "istio-envoy"

// HTTPOptions describe an HTTP connection manager.
type HTTPOptions struct {
	StatPrefix string
	// RouteConfigName names routes that come over ADS. RouteConfig has routes that are
	// part of the listener, and wins.
	RouteConfigName string
	RouteConfig     *routev3.RouteConfiguration
	// Edge is for gateways: it does not trust clients' X-Forwarded-For and sets its own.
	Edge bool
	// TrustedHops is the number of addresses at the end of X-Forwarded-For that belong to
	// trusted proxies in front of an Edge.
	TrustedHops uint32
	// Normalization says how the path of a request is written before anything looks at it.
	Normalization meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType
	// HTTP3 is for a QUIC listener, which speaks only HTTP/3.
	HTTP3 bool
	// ServerName is the value of the header "server", Envoy's own if empty.
	ServerName string
	// ClientCert says how to handle X-Forwarded-Client-Cert. The zero value removes the
	// header. Modes that add the client's certificate add its hash, and the ClientCertDetails.
	ClientCert        hcmv3.HttpConnectionManager_ForwardClientCertDetails
	ClientCertDetails *hcmv3.HttpConnectionManager_SetCurrentClientCertDetails
	// Proxy says how it speaks HTTP.
	Proxy HTTPProxy
	// Filters are the HTTP filters in order, with the router last.
	Filters    []*hcmv3.HttpFilter
	AccessLogs []*accesslogv3.AccessLog
	// Tracing says which requests are traced, and where spans go; nil for none.
	Tracing *hcmv3.HttpConnectionManager_Tracing
	// UntracedIDs: the id of a request does not say whether it is traced.
	UntracedIDs bool
}

// HTTPConnectionManager makes the filter that speaks HTTP. It accepts HTTP/1.1 and
// HTTP/2, upgrades to WebSocket, and passes "Expect: 100-continue" and its answer on. It has no idle
// timeout for streams. Proxy may say otherwise.
func HTTPConnectionManager(o HTTPOptions) *listenerv3.Filter {
	manager := &hcmv3.HttpConnectionManager{
		CodecType:         hcmv3.HttpConnectionManager_AUTO,
		StatPrefix:        o.StatPrefix,
		HttpFilters:       o.Filters,
		ServerName:        o.ServerName,
		UseRemoteAddress:  wrapperspb.Bool(o.Edge),
		XffNumTrustedHops: o.TrustedHops,
		// A name with the dot of the root is the same name (RFC 1034, section 3.1).
		StripTrailingHostDot: true,
		StreamIdleTimeout:    durationpb.New(0),
		UpgradeConfigs:       []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		AccessLog:            o.AccessLogs,
		// The upstream decides whether it wants the body. (Istio: ENABLE_100_CONTINUE_HEADERS.)
		Proxy_100Continue: true,
		Tracing:           o.Tracing,
	}
	if o.UntracedIDs {
		manager.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: message.Pack(&uuidv3.UuidRequestIdConfig{UseRequestIdForTraceSampling: wrapperspb.Bool(false)})}
	}
	normalize(manager, o.Normalization)
	o.Proxy.apply(manager)
	manager.ForwardClientCertDetails = o.ClientCert
	if o.ClientCert == hcmv3.HttpConnectionManager_APPEND_FORWARD || o.ClientCert == hcmv3.HttpConnectionManager_SANITIZE_SET {
		manager.SetCurrentClientCertDetails = o.ClientCertDetails
	}
	if o.HTTP3 {
		manager.CodecType, manager.Http3ProtocolOptions = hcmv3.HttpConnectionManager_HTTP3, &corev3.Http3ProtocolOptions{}
	}
	if o.RouteConfig != nil {
		manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: o.RouteConfig}
	} else {
		manager.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: message.ADS(), RouteConfigName: o.RouteConfigName},
		}
	}
	return networkFilter(HTTPConnectionManagerName, manager)
}

// normalize sets how paths are written: as they came, by RFC 3986, with one slash in the place of
// several, and also with slashes and backslashes decoded. (Istio: buildHTTPConnectionManager.)
func normalize(m *hcmv3.HttpConnectionManager, n meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType) {
	m.NormalizePath = wrapperspb.Bool(n != meshv1alpha1.MeshConfig_ProxyPathNormalization_NONE)
	m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_KEEP_UNCHANGED
	switch n {
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		m.MergeSlashes = true
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		m.MergeSlashes = true
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}

// RouterFilter makes the last HTTP filter, which executes the action of a route.
func RouterFilter() *hcmv3.HttpFilter { return httpFilter(RouterName, &routerv3.Router{}) }

// QuietRouterFilter is a RouterFilter that writes no X-Envoy headers.
func QuietRouterFilter() *hcmv3.HttpFilter {
	return httpFilter(RouterName, &routerv3.Router{SuppressEnvoyHeaders: true})
}

func httpFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(config)}}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: message.Pack(config)}}
}

// TCPProxyOptions describe a TCP proxy.
type TCPProxyOptions struct {
	StatPrefix string
	// Clusters share the connections by weight, like the clusters of Forward. Without
	// any, connections go to the black hole.
	Clusters []WeightedCluster
	// IdleTimeout closes an idle connection. Nil means Envoy's hour; 0 means never.
	IdleTimeout *durationpb.Duration
	// HashSourceIP hashes the client's address, for consistent hashing.
	HashSourceIP bool
	// Tunnel makes endpoints forward connections to a target; nil for connections to the
	// endpoints themselves.
	Tunnel *Tunnel
	// AccessLogs record the end of a connection. With LogOpened they also record that it is
	// connected upstream.
	AccessLogs []*accesslogv3.AccessLog
	LogOpened  bool
}

// Tunnel is the HTTP request, CONNECT or POST, that tunnels a connection through an
// endpoint to the target, host:port.
type Tunnel struct {
	Target string
	Post   bool
}

// TCPProxy makes the filter that forwards TCP connections.
func TCPProxy(o TCPProxyOptions) *listenerv3.Filter {
	out := &tcpproxyv3.TcpProxy{
		StatPrefix:  o.StatPrefix,
		IdleTimeout: o.IdleTimeout,
		AccessLog:   o.AccessLogs,
	}
	if o.LogOpened {
		out.AccessLogOptions = &tcpproxyv3.TcpProxy_TcpAccessLogOptions{FlushAccessLogOnConnected: true}
	}
	if t := o.Tunnel; t != nil {
		out.TunnelingConfig = &tcpproxyv3.TcpProxy_TunnelingConfig{Hostname: t.Target, UsePost: t.Post}
	}
	if o.HashSourceIP {
		out.HashPolicy = sourceIPHash()
	}
	switch clusters := effective(o.Clusters); len(clusters) {
	case 0:
		out.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: names.BlackHoleCluster}
	case 1:
		out.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: clusters[0].Name}
	default:
		out.ClusterSpecifier = &tcpproxyv3.TcpProxy_WeightedClusters{WeightedClusters: tcpClusters(clusters)}
	}
	return networkFilter(TCPProxyName, out)
}

func tcpClusters(clusters []WeightedCluster) *tcpproxyv3.TcpProxy_WeightedCluster {
	weights := make([]uint32, len(clusters))
	for i, c := range clusters {
		weights[i] = c.Weight
	}
	out := &tcpproxyv3.TcpProxy_WeightedCluster{}
	for i, weight := range message.FitWeights(weights) {
		out.Clusters = append(out.Clusters, &tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight{
			Name: clusters[i].Name, Weight: weight,
		})
	}
	return out
}
