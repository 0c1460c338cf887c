package envoy

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ServerName is what inbound listeners and gateways call themselves in the
// header "server".
const ServerName = "istio-envoy"

// HTTPOptions describe an HTTP connection manager.
type HTTPOptions struct {
	StatPrefix string
	// RouteConfigName names routes that come over ADS; RouteConfig are routes
	// that come with the listener, and win.
	RouteConfigName string
	RouteConfig     *routev3.RouteConfiguration
	// Edge trusts no X-Forwarded-For of its clients and sets its own: for
	// gateways.
	Edge bool
	// TrustedHops is how many addresses at the end of X-Forwarded-For are those of
	// trusted proxies in front of an Edge.
	TrustedHops uint32
	// ServerName is the value of the header "server", Envoy's own where empty.
	ServerName string
	// ForwardIdentity appends to X-Forwarded-Client-Cert who the client proved to
	// be. Without it the header is taken away, as it is from a client that proved
	// nothing.
	ForwardIdentity bool
	// Filters run, in their order, before the router, which is added.
	Filters    []*hcmv3.HttpFilter
	AccessLogs []*accesslogv3.AccessLog
}

// HTTPConnectionManager makes the filter that speaks HTTP. It takes either
// version, upgrades to WebSocket, normalizes paths and never ends a stream for
// being idle.
func HTTPConnectionManager(o HTTPOptions) *listenerv3.Filter {
	manager := &hcmv3.HttpConnectionManager{
		CodecType:         hcmv3.HttpConnectionManager_AUTO,
		StatPrefix:        o.StatPrefix,
		HttpFilters:       append(o.Filters[:len(o.Filters):len(o.Filters)], router()),
		ServerName:        o.ServerName,
		UseRemoteAddress:  wrapperspb.Bool(o.Edge),
		XffNumTrustedHops: o.TrustedHops,
		NormalizePath:     wrapperspb.Bool(true),
		StreamIdleTimeout: durationpb.New(0),
		UpgradeConfigs:    []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		AccessLog:         o.AccessLogs,
	}
	if o.ForwardIdentity {
		manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
		manager.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
			Subject: wrapperspb.Bool(true), Uri: true, Dns: true,
		}
	}
	if o.RouteConfig != nil {
		manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: o.RouteConfig}
	} else {
		manager.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: ADS(), RouteConfigName: o.RouteConfigName},
		}
	}
	return networkFilter(HTTPConnectionManagerName, manager)
}

func router() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{
		Name:       RouterName,
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
	}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(config)}}
}

// TCPProxyOptions describe a TCP proxy.
type TCPProxyOptions struct {
	StatPrefix string
	// Clusters share the connections by weight, as those of Forward do requests;
	// with none, connections go to the black hole.
	Clusters []WeightedCluster
	// IdleTimeout closes a connection that nothing is sent on, Envoy's hour
	// where it is 0.
	IdleTimeout time.Duration
	// HashSourceIP hashes the client's address, for consistent hashing.
	HashSourceIP bool
	AccessLogs   []*accesslogv3.AccessLog
}

// TCPProxy makes the filter that forwards bytes.
func TCPProxy(o TCPProxyOptions) *listenerv3.Filter {
	out := &tcpproxyv3.TcpProxy{
		StatPrefix:  o.StatPrefix,
		IdleTimeout: seconds(o.IdleTimeout),
		AccessLog:   o.AccessLogs,
	}
	if o.HashSourceIP {
		out.HashPolicy = sourceIPHash()
	}
	switch clusters := effective(o.Clusters); len(clusters) {
	case 0:
		out.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: BlackHoleClusterName}
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
	for i, weight := range fitWeights(weights) {
		out.Clusters = append(out.Clusters, &tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight{
			Name: clusters[i].Name, Weight: weight,
		})
	}
	return out
}

// HTTPConnectionManagerOf reads the HTTP connection manager back out of a filter
// chain, nil where it has none.
func HTTPConnectionManagerOf(chain *listenerv3.FilterChain) *hcmv3.HttpConnectionManager {
	out := &hcmv3.HttpConnectionManager{}
	if !unpack(chain, out) {
		return nil
	}
	return out
}

// TCPProxyOf is like HTTPConnectionManagerOf.
func TCPProxyOf(chain *listenerv3.FilterChain) *tcpproxyv3.TcpProxy {
	out := &tcpproxyv3.TcpProxy{}
	if !unpack(chain, out) {
		return nil
	}
	return out
}

// RouteConfigNameOf is the name of the routes that a filter chain gets over ADS,
// empty where there are none.
func RouteConfigNameOf(chain *listenerv3.FilterChain) string {
	return HTTPConnectionManagerOf(chain).GetRds().GetRouteConfigName()
}

// unpack reads the first filter that is configured by such a message as out.
func unpack(chain *listenerv3.FilterChain, out proto.Message) bool {
	for _, f := range chain.GetFilters() {
		if f.GetTypedConfig().MessageIs(out) {
			return f.GetTypedConfig().UnmarshalTo(out) == nil
		}
	}
	return false
}
