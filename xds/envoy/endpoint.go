package envoy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const unixScheme = "unix://"

// IsUnix says whether host is not a host but a Unix domain socket: a path, or
// an abstract name ("@..."), with or without the scheme "unix://".
func IsUnix(host string) bool {
	return strings.HasPrefix(host, unixScheme) || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@")
}

// Address makes the address of a host, which may be an IP address (IPv6 with or
// without brackets), a host name or a Unix domain socket. The port of a socket
// is ignored.
func Address(host string, port uint32) *corev3.Address {
	if IsUnix(host) {
		return &corev3.Address{Address: &corev3.Address_Pipe{
			Pipe: &corev3.Pipe{Path: strings.TrimPrefix(host, unixScheme)},
		}}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// HealthStatus is what Envoy is told of an endpoint.
type HealthStatus = corev3.HealthStatus

// The states of an endpoint to which no new request goes while another can take
// it.
const (
	Unhealthy = corev3.HealthStatus_UNHEALTHY
	Draining  = corev3.HealthStatus_DRAINING
)

// Endpoint is one endpoint of a cluster.
type Endpoint struct {
	Host   string // as for Address; a host name only in DNS clusters
	Port   uint32
	Weight uint32 // 0 is 1
	// Health is UNKNOWN, which Envoy takes for healthy, by default.
	Health   HealthStatus
	Metadata EndpointMetadata
}

// Endpoints are the endpoints of one locality, in the order in which they are
// to be sent.
type Endpoints struct {
	Locality string // region/zone/subzone, parts from the right may be missing
	Priority uint32
	// Weight of the locality; 0 is the sum of the weights of its endpoints.
	Weight    uint32
	Endpoints []Endpoint
}

// LoadAssignment makes the endpoints of a cluster. Envoy refuses weights whose
// sum is beyond 32 bits: such weights are scaled down alike. Localities without
// endpoints are left out; without any, the result is an empty assignment, which
// is a valid answer.
func LoadAssignment(cluster string, localities []Endpoints) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	var sums []uint32
	for _, l := range localities {
		if len(l.Endpoints) == 0 {
			continue
		}
		endpoints, sum := lbEndpoints(l.Endpoints)
		if l.Weight != 0 {
			sum = l.Weight
		}
		sums = append(sums, sum)
		out.Endpoints = append(out.Endpoints, &endpointv3.LocalityLbEndpoints{
			Locality:    Locality(l.Locality),
			LbEndpoints: endpoints,
			Priority:    l.Priority,
		})
	}
	for i, weight := range fitWeights(sums) {
		out.Endpoints[i].LoadBalancingWeight = wrapperspb.UInt32(weight)
	}
	return out
}

// EncodedLocality is the endpoints of one locality as a part of an encoded load
// assignment. It is never modified.
type EncodedLocality struct {
	body     []byte // locality and endpoints
	weight   uint32
	priority uint32
}

// EncodeLocality encodes the endpoints of a locality.
func EncodeLocality(l Endpoints) (EncodedLocality, error) {
	if len(l.Endpoints) == 0 {
		return EncodedLocality{}, nil
	}
	endpoints, sum := lbEndpoints(l.Endpoints)
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(&endpointv3.LocalityLbEndpoints{
		Locality: Locality(l.Locality), LbEndpoints: endpoints,
	})
	return EncodedLocality{body, cmp.Or(l.Weight, sum), l.Priority}, err
}

// The fields of an encoded load assignment that are put together.
const (
	assignmentName        = 1 // of ClusterLoadAssignment
	assignmentLocality    = 2
	localityWeight        = 3 // of LocalityLbEndpoints
	localityPriority      = 5
	weightValue           = 1 // of UInt32Value
	maxLocalityFraming    = 32
	maxAssignmentOverhead = 16
)

// AssembleLoadAssignment puts encoded localities together to the bytes that
// LoadAssignment of them has.
func AssembleLoadAssignment(cluster string, localities []EncodedLocality) []byte {
	localities = slices.DeleteFunc(slices.Clone(localities), func(l EncodedLocality) bool { return l.body == nil })
	sums := make([]uint32, len(localities))
	size := len(cluster) + maxAssignmentOverhead
	for i, l := range localities {
		sums[i] = l.weight
		size += len(l.body) + maxLocalityFraming
	}
	out := make([]byte, 0, size)
	out = protowire.AppendTag(out, assignmentName, protowire.BytesType)
	out = protowire.AppendString(out, cluster)
	for i, weight := range fitWeights(sums) {
		tail := localityTail(weight, localities[i].priority)
		out = protowire.AppendTag(out, assignmentLocality, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(len(localities[i].body)+len(tail)))
		out = append(append(out, localities[i].body...), tail...)
	}
	return out
}

// localityTail is what follows the endpoints of a locality.
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

// lbEndpoints makes the endpoints of one locality and the saturating sum of
// their weights.
func lbEndpoints(endpoints []Endpoint) ([]*endpointv3.LbEndpoint, uint32) {
	weights := make([]uint32, len(endpoints))
	for i, e := range endpoints {
		weights[i] = e.Weight
	}
	var sum uint64
	out := make([]*endpointv3.LbEndpoint, len(endpoints))
	for i, weight := range fitWeights(weights) {
		sum += uint64(weight)
		out[i] = &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: Address(endpoints[i].Host, endpoints[i].Port)},
			},
			HealthStatus:        endpoints[i].Health,
			Metadata:            endpoints[i].Metadata.Message(),
			LoadBalancingWeight: wrapperspb.UInt32(weight),
		}
	}
	return out, uint32(min(sum, math.MaxUint32))
}

// Locality reads region/zone/subzone; what is left out is empty.
func Locality(text string) *corev3.Locality {
	region, rest, _ := strings.Cut(text, "/")
	zone, subZone, _ := strings.Cut(rest, "/")
	return &corev3.Locality{Region: region, Zone: zone, SubZone: subZone}
}
