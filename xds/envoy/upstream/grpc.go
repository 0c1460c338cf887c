package upstream

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

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
	Metadata  message.ClusterMetadata
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
