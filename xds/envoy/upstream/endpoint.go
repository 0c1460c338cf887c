package upstream

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// HealthStatus is the health of an endpoint in a load assignment.
type HealthStatus = corev3.HealthStatus

// The states of an endpoint that gets new requests only if no other endpoint can take
// them.
const (
	Unhealthy = corev3.HealthStatus_UNHEALTHY
	Draining  = corev3.HealthStatus_DRAINING
)

// Endpoint is one endpoint of a cluster.
type Endpoint struct {
	Host   string // as for message.Address; a host name only in DNS clusters
	Port   uint32
	Weight uint32 // 0 is 1
	// Health is UNKNOWN by default, which Envoy treats as healthy.
	Health   HealthStatus
	Metadata message.EndpointMetadata
	// Unchecked excludes the endpoint from the cluster's health check.
	Unchecked bool
}

// Endpoints are the endpoints of one locality, in the order of the message.
type Endpoints struct {
	Locality string // region/zone/subzone, parts from the right may be missing
	Priority uint32
	// Weight is the weight of the locality; 0 means the sum of its endpoints' weights.
	Weight    uint32
	Endpoints []Endpoint
}

// LoadAssignment makes the endpoints of a cluster. Envoy adds up the weights of all
// endpoints of a priority, and refuses a sum beyond 32 bits; to avoid that, all weights
// of the assignment are scaled down together. Localities without endpoints are omitted.
// An assignment without localities is valid.
// https://github.com/envoyproxy/envoy/pull/10578
func LoadAssignment(cluster string, localities []Endpoints) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	var total message.WeightSum
	for _, l := range localities {
		total = total.Plus(sumOf(l.Endpoints))
	}
	var weights []uint32
	for _, l := range localities {
		if len(l.Endpoints) == 0 {
			continue
		}
		endpoints, sum := lbEndpoints(l.Endpoints, total.Divisor())
		weights = append(weights, cmp.Or(l.Weight, sum))
		out.Endpoints = append(out.Endpoints, &endpointv3.LocalityLbEndpoints{
			Locality:    Locality(l.Locality),
			LbEndpoints: endpoints,
			Priority:    l.Priority,
		})
	}
	for i, weight := range message.FitWeights(weights) {
		out.Endpoints[i].LoadBalancingWeight = wrapperspb.UInt32(weight)
	}
	return out
}

func sumOf(endpoints []Endpoint) (sum message.WeightSum) {
	for _, e := range endpoints {
		sum = sum.With(e.Weight)
	}
	return sum
}

// EncodedLocality holds the endpoints of one locality as part of an encoded load
// assignment. It is never modified.
type EncodedLocality struct {
	body     []byte // locality and endpoints
	sum      message.WeightSum
	weight   uint32
	priority uint32
}

// EncodeLocality encodes the endpoints of a locality.
func EncodeLocality(l Endpoints) (EncodedLocality, error) {
	if len(l.Endpoints) == 0 {
		return EncodedLocality{}, nil
	}
	sum := sumOf(l.Endpoints)
	endpoints, weight := lbEndpoints(l.Endpoints, sum.Divisor())
	out := &endpointv3.LocalityLbEndpoints{Locality: Locality(l.Locality), LbEndpoints: endpoints}
	if err := message.Check(out); err != nil {
		return EncodedLocality{}, err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	return EncodedLocality{body, sum, cmp.Or(l.Weight, weight), l.Priority}, err
}

// Weight is the weight of the locality, 0 if it has no endpoints.
func (l EncodedLocality) Weight() uint32 { return l.weight }

// Placed returns the locality with this priority and weight; weight 0 removes it.
func (l EncodedLocality) Placed(priority, weight uint32) EncodedLocality {
	if weight == 0 {
		return EncodedLocality{}
	}
	l.priority, l.weight = priority, weight
	return l
}

// The field numbers of an assembled load assignment.
const (
	assignmentName        = 1 // of ClusterLoadAssignment
	assignmentLocality    = 2
	localityWeight        = 3 // of LocalityLbEndpoints
	localityPriority      = 5
	weightValue           = 1 // of UInt32Value
	maxLocalityFraming    = 32
	maxAssignmentOverhead = 16
)

// AssembleLoadAssignment joins encoded localities. The result has the same bytes as their
// LoadAssignment. It returns false if endpoint weights must be scaled down, since then
// endpoints must be encoded anew; use LoadAssignment instead.
func AssembleLoadAssignment(cluster string, localities []EncodedLocality) ([]byte, bool) {
	localities = slices.DeleteFunc(slices.Clone(localities), func(l EncodedLocality) bool { return l.body == nil })
	weights := make([]uint32, len(localities))
	size := len(cluster) + maxAssignmentOverhead
	var total message.WeightSum
	for i, l := range localities {
		weights[i] = l.weight
		size += len(l.body) + maxLocalityFraming
		total = total.Plus(l.sum)
	}
	if total.Divisor() > 1 {
		return nil, false
	}
	out := make([]byte, 0, size)
	out = protowire.AppendTag(out, assignmentName, protowire.BytesType)
	out = protowire.AppendString(out, cluster)
	for i, weight := range message.FitWeights(weights) {
		tail := localityTail(weight, localities[i].priority)
		out = protowire.AppendTag(out, assignmentLocality, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(len(localities[i].body)+len(tail)))
		out = append(append(out, localities[i].body...), tail...)
	}
	return out, true
}

// localityTail encodes the fields after the endpoints of a locality.
func localityTail(weight, priority uint32) []byte {
	var value []byte
	if weight != 0 {
		value = protowire.AppendVarint(protowire.AppendTag(nil, weightValue, protowire.VarintType), uint64(weight))
	}
	out := protowire.AppendBytes(protowire.AppendTag(nil, localityWeight, protowire.BytesType), value)
	if priority != 0 {
		out = protowire.AppendVarint(protowire.AppendTag(out, localityPriority, protowire.VarintType), uint64(priority))
	}
	return out
}

// lbEndpoints makes the endpoints of one locality with their weights divided, and returns
// the sum of the divided weights. The divisor must make the sum fit 32 bits.
func lbEndpoints(endpoints []Endpoint, divisor uint64) ([]*endpointv3.LbEndpoint, uint32) {
	var sum uint32
	out := make([]*endpointv3.LbEndpoint, len(endpoints))
	for i, e := range endpoints {
		weight := message.Divided(e.Weight, divisor)
		sum += weight
		out[i] = &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: message.Address(e.Host, e.Port), HealthCheckConfig: e.checkConfig()},
			},
			HealthStatus:        e.Health,
			Metadata:            e.Metadata.Message(),
			LoadBalancingWeight: wrapperspb.UInt32(weight),
		}
	}
	return out, sum
}

// Locality parses region/zone/subzone; missing parts are empty.
func Locality(text string) *corev3.Locality {
	region, rest, _ := strings.Cut(text, "/")
	zone, subZone, _ := strings.Cut(rest, "/")
	return &corev3.Locality{Region: region, Zone: zone, SubZone: subZone}
}
