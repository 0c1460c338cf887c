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
)

// What gRPC clients and servers take of Envoy's API is little, and they refuse a
// resource for what they do not know. The messages here have just that.

// GRPCServerListenerPrefix begins the names of the listeners that gRPC servers
// ask for; what follows is the address that they listen on.
const GRPCServerListenerPrefix = "xds.istio.io/grpc/lds/inbound/"

// GRPCClientListener makes the listener of a gRPC client's target, whose routes
// come over ADS.
func GRPCClientListener(name, routeConfig string) *listenerv3.Listener {
	return grpcClientListener(name, &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: ADS(), RouteConfigName: routeConfig},
		},
	})
}

// EmptyGRPCClientListener makes the listener of a target that leads nowhere: calls
// fail at once, as unavailable.
func EmptyGRPCClientListener(name string) *listenerv3.Listener {
	return grpcClientListener(name, &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: EmptyGRPCRouteConfig(name)},
	})
}

// EmptyGRPCRouteConfig makes routes that lead nowhere. (The library in JavaScript
// has a call without a route wait.)
func EmptyGRPCRouteConfig(name string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: BlockAllVirtualHostName, Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Name: DefaultRouteName, Match: Match(MatchOptions{}), Action: &routev3.Route_Route{Route: GRPCNowhere()},
		}},
	}}}
}

// GRPCNowhere has calls fail at once, as unavailable: it sends them to the cluster
// without endpoints, BlackHoleClusterName. There is nothing else of which every
// library makes that; the one in JavaScript dies of a route that does not forward.
func GRPCNowhere() *routev3.RouteAction {
	return &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: BlackHoleClusterName}}
}

func grpcClientListener(name string, manager *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	manager.StatPrefix = HTTPStatPrefix(Outbound, name)
	manager.HttpFilters = []*hcmv3.HttpFilter{router()}
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: pack(manager)}}
}

// GRPCServerListener makes the listener of a gRPC server at an address, which
// takes every call of every client, without TLS.
func GRPCServerListener(name, host string, port uint32) *listenerv3.Listener {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix:  HTTPStatPrefix(Inbound, name),
		HttpFilters: []*hcmv3.HttpFilter{router()},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: InboundClusterName(port),
			VirtualHosts: []*routev3.VirtualHost{{
				Name: InboundVirtualHostName(port), Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Name: DefaultRouteName, Match: Match(MatchOptions{}),
					Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
				}},
			}},
		}},
	}
	return &listenerv3.Listener{
		Name: name, Address: Address(host, port), TrafficDirection: corev3.TrafficDirection_INBOUND,
		FilterChains: []*listenerv3.FilterChain{{
			Name: name, Filters: []*listenerv3.Filter{networkFilter(HTTPConnectionManagerName, manager)},
		}},
	}
}

// GRPCClusterOptions describe a cluster of a gRPC client.
type GRPCClusterOptions struct {
	Name string
	// DNS is the one endpoint, with a name that the client resolves; nil where the
	// endpoints come over ADS, under the cluster's name.
	DNS *Endpoint
	// Policy is LeastRequest where the client has it, RingHash, or else round robin,
	// which every client has.
	Policy LBPolicy
	// MinimumRingSize is that of RingHash, the client's 1024 where it is 0.
	MinimumRingSize uint64
	// MaxRequests limits the calls at one time; 0 is no limit.
	MaxRequests uint32
	Metadata    ClusterMetadata
}

// GRPCCluster makes a cluster of a gRPC client.
func GRPCCluster(o GRPCClusterOptions) *clusterv3.Cluster {
	out := &clusterv3.Cluster{
		Name: o.Name, LbPolicy: clusterv3.Cluster_ROUND_ROBIN, Metadata: o.Metadata.Message(),
		// Left out it would be 1024.
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

// leastRequestOrRoundRobin lists two policies, of which a client takes the first
// that it has, in each locality, and the localities by their weights.
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
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(config)},
	}
}
