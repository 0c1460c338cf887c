package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/names"
)

// gRPC clients and servers know only a part of Envoy's API, and refuse resources with
// unknown parts. The messages here use only known parts.

// GRPCServerListenerPrefix is the prefix of the listener names that gRPC servers request;
// the server's address follows it.
const GRPCServerListenerPrefix = "xds.istio.io/grpc/lds/inbound/"

// GRPCClientListener makes the listener of a gRPC client's target, with HTTP filters and
// with routes that come over ADS.
func GRPCClientListener(name, routeConfig string, filters []*hcmv3.HttpFilter) *listenerv3.Listener {
	return grpcClientListener(name, &hcmv3.HttpConnectionManager{
		HttpFilters: filters,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: message.ADS(), RouteConfigName: routeConfig},
		},
	})
}

// EmptyGRPCClientListener makes the listener of a target that leads nowhere: calls fail
// at once as unavailable.
func EmptyGRPCClientListener(name string) *listenerv3.Listener {
	return grpcClientListener(name, &hcmv3.HttpConnectionManager{
		HttpFilters:    []*hcmv3.HttpFilter{RouterFilter()},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: EmptyGRPCRouteConfig(name)},
	})
}

func grpcClientListener(name string, manager *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	manager.StatPrefix = names.HTTPStatPrefix(names.Outbound, name)
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: message.Pack(manager)}}
}

// GRPCServerOptions describe the listener of a gRPC server.
type GRPCServerOptions struct {
	Name, Host string
	Port       uint32
	Filters    []*hcmv3.HttpFilter
	// Transport decrypts connections; nil means plaintext.
	Transport *corev3.TransportSocket
	// Refuses closes every connection.
	Refuses bool
}

// GRPCServerListener makes the listener of a gRPC server at an address. It accepts every call
// that the filters let pass.
func GRPCServerListener(o GRPCServerOptions) *listenerv3.Listener {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix:  names.HTTPStatPrefix(names.Inbound, o.Name),
		HttpFilters: o.Filters,
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: names.InboundCluster(o.Port),
			VirtualHosts: []*routev3.VirtualHost{{
				Name: names.InboundVirtualHost(o.Port), Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Name: names.DefaultRoute, Match: MatchOptions{}.routeMatch(),
					Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
				}},
			}},
		}},
	}
	chain := &listenerv3.FilterChain{
		Name: o.Name, Filters: []*listenerv3.Filter{networkFilter(HTTPConnectionManagerName, manager)}, TransportSocket: o.Transport,
	}
	if o.Refuses { // by a chain for an address from which nobody connects
		chain.FilterChainMatch = &listenerv3.FilterChainMatch{SourcePrefixRanges: []*corev3.CidrRange{{AddressPrefix: "255.255.255.255", PrefixLen: wrapperspb.UInt32(32)}}}
	}
	return &listenerv3.Listener{
		Name: o.Name, Address: Address(o.Host, o.Port), TrafficDirection: corev3.TrafficDirection_INBOUND,
		FilterChains: []*listenerv3.FilterChain{chain},
	}
}

// GRPCClusterOptions describe a cluster of a gRPC client.
type GRPCClusterOptions struct {
	Name string
	// DNS is the only endpoint, whose host name the client resolves. It is nil if the
	// endpoints come over ADS, under the cluster's name.
	DNS *Endpoint
	// Policy is RingHash, or LeastRequest, for which clients without it use round robin.
	// Everything else means round robin, which every client knows.
	Policy LBPolicy
	// MinimumRingSize is the minimum size of a RingHash; 0 means the client's default of
	// 1024.
	MinimumRingSize uint64
	// MaxRequests limits concurrent calls; 0 means no limit.
	MaxRequests uint32
	// Transport encrypts the calls of clients with xDS credentials; nil means plaintext.
	Transport *corev3.TransportSocket
	Metadata  ClusterMetadata
}

// GRPCCluster makes a cluster of a gRPC client.
func GRPCCluster(o GRPCClusterOptions) *clusterv3.Cluster {
	out := &clusterv3.Cluster{
		Name: o.Name, LbPolicy: clusterv3.Cluster_ROUND_ROBIN, Metadata: o.Metadata.Message(), TransportSocket: o.Transport,
		// If it were omitted, the limit would be 1024.
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxRequests: limit(o.MaxRequests),
		}}},
	}
	switch o.Policy {
	case LeastRequest:
		out.LoadBalancingPolicy = leastRequestOrRoundRobin()
	case RingHash:
		LoadBalancer{Policy: RingHash, MinimumRingSize: o.MinimumRingSize}.apply(out)
	}
	if o.DNS != nil {
		out.ClusterDiscoveryType = builtin(clusterv3.Cluster_LOGICAL_DNS)
		out.LoadAssignment = LoadAssignment(o.Name, []Endpoints{{Endpoints: []Endpoint{*o.DNS}}})
		return out
	}
	ClusterOptions{Name: o.Name, Type: EDS}.applyType(out)
	return out
}

// leastRequestOrRoundRobin lists two policies. A client uses the first that it knows,
// within each locality, and weights the localities.
func leastRequestOrRoundRobin() *clusterv3.LoadBalancingPolicy {
	return lbPolicies(lbPolicy("envoy.load_balancing_policies.wrr_locality", &wrrlocalityv3.WrrLocality{
		EndpointPickingPolicy: lbPolicies(
			lbPolicy("envoy.load_balancing_policies.least_request", &leastrequestv3.LeastRequest{ChoiceCount: wrapperspb.UInt32(2)}),
			lbPolicy("envoy.load_balancing_policies.round_robin", &roundrobinv3.RoundRobin{}),
		),
	}))
}

func lbPolicies(policies ...*clusterv3.LoadBalancingPolicy_Policy) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: policies}
}

func lbPolicy(name string, config proto.Message) *clusterv3.LoadBalancingPolicy_Policy {
	return &clusterv3.LoadBalancingPolicy_Policy{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: message.Pack(config)},
	}
}
