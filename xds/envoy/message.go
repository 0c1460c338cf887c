package envoy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// pack wraps m, always in the same bytes. Generators pack messages that follow from
// validated objects. So a message that breaks the API's rules, or does not marshal, is
// a programming error, and a panic; generate.Build recovers from it.
func pack(m proto.Message) *anypb.Any {
	if err := Check(m); err != nil {
		panic(fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().FullName(), err))
	}
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Errorf("marshal %s: %w", m.ProtoReflect().Descriptor().FullName(), err))
	}
	return out
}

// Check returns the first rule of the API that a message breaks: an Envoy would refuse
// it. It does not look into packed messages, which were checked when they were packed.
func Check(m proto.Message) error {
	ruled, ok := m.(interface {
		Validate() error
		ValidateAll() error
	})
	if !ok || ruled.Validate() == nil {
		return nil
	}
	return ruled.ValidateAll()
}

// seconds is d, or nothing where d is 0: for fields in which an explicit 0
// means something else than leaving them out.
func seconds(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// count is n, or nothing where n is 0.
func count(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}

// ADS is the source of resources that come over the stream that the bootstrap
// opens. Envoy waits for them without limit: the server answers every name.
func ADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0),
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}
}

// weightSum is a sum of weights; a weight of 0 counts as 1.
type weightSum struct {
	sum uint64
	n   int
}

func (s weightSum) with(weight uint32) weightSum {
	return weightSum{s.sum + uint64(max(weight, 1)), s.n + 1}
}

func (s weightSum) plus(o weightSum) weightSum { return weightSum{s.sum + o.sum, s.n + o.n} }

// divisor scales the weights down. Envoy accepts a sum of 32 bits.
func (s weightSum) divisor() uint64 {
	if s.sum <= math.MaxUint32 {
		return 1
	}
	// Rounding a weight up to 1 adds less than one for each, hence the margin.
	return s.sum/(math.MaxUint32-uint64(s.n)) + 1
}

// divided is a weight divided, and never 0.
func divided(weight uint32, divisor uint64) uint32 { return uint32(max(uint64(weight)/divisor, 1)) }

// fitWeights returns weights without 0 and with a sum that Envoy accepts: if it is
// beyond 32 bits all are scaled down alike.
func fitWeights(weights []uint32) []uint32 {
	var sum weightSum
	for _, w := range weights {
		sum = sum.with(w)
	}
	out := make([]uint32, len(weights))
	for i, w := range weights {
		out[i] = divided(w, sum.divisor())
	}
	return out
}

// The namespaces of metadata.
const (
	istioMetadata           = "istio"
	transportSocketMetadata = "envoy.transport_socket_match"
)

// ServiceRef is a service as a cluster's metadata names it.
type ServiceRef struct{ Host, Name, Namespace string }

// ClusterMetadata describes the origin of a cluster, in namespace "istio".
type ClusterMetadata struct {
	Config   string // names.ConfigPath of its DestinationRule, empty for none
	Subset   string
	Services []ServiceRef
	External bool // the services are outside the mesh
	// KeepALPN: Istio's filter, where there is one, leaves the application protocols as they
	// are.
	KeepALPN bool
}

// Message makes the metadata, nil where there is nothing to tell.
func (m ClusterMetadata) Message() *corev3.Metadata {
	fields := map[string]*structpb.Value{}
	setText(fields, "config", m.Config)
	setText(fields, "subset", m.Subset)
	if len(m.Services) > 0 {
		services := make([]*structpb.Value, len(m.Services))
		for i, s := range m.Services {
			services[i] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"host":      structpb.NewStringValue(s.Host),
				"name":      structpb.NewStringValue(s.Name),
				"namespace": structpb.NewStringValue(s.Namespace),
			}})
		}
		fields["services"] = structpb.NewListValue(&structpb.ListValue{Values: services})
	}
	if m.External {
		fields["external"] = structpb.NewBoolValue(true)
	}
	if m.KeepALPN {
		fields["alpn_override"] = structpb.NewStringValue("false")
	}
	return metadata(map[string]map[string]*structpb.Value{istioMetadata: fields})
}

// ConfigMetadata is the metadata of a route or cluster: where it comes from, as
// names.ConfigPath names it.
func ConfigMetadata(path string) *corev3.Metadata { return ClusterMetadata{Config: path}.Message() }

// ConfigOf is the names.ConfigPath in metadata, empty where there is none.
func ConfigOf(m *corev3.Metadata) string {
	return m.GetFilterMetadata()[istioMetadata].GetFields()["config"].GetStringValue()
}

// EndpointMetadata is what an endpoint tells of its workload.
type EndpointMetadata struct {
	// Workload is "name;namespace;canonical service;revision;cluster", as
	// Istio's telemetry reads it.
	Workload string
	// TLSMode selects among the cluster's transport sockets; "istio" for mutual
	// TLS, empty for none.
	TLSMode string
}

// Message makes the metadata, nil where there is nothing to tell.
func (m EndpointMetadata) Message() *corev3.Metadata {
	if m.TLSMode == "" {
		return m.workload()
	}
	workload, socket := map[string]*structpb.Value{}, map[string]*structpb.Value{}
	setText(workload, "workload", m.Workload)
	setText(socket, "tlsMode", m.TLSMode)
	return metadata(map[string]map[string]*structpb.Value{istioMetadata: workload, transportSocketMetadata: socket})
}

// workload is the metadata of an endpoint without a TLS mode. It allocates little: an
// assignment has many.
func (m EndpointMetadata) workload() *corev3.Metadata {
	if m.Workload == "" {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		istioMetadata: {Fields: map[string]*structpb.Value{"workload": structpb.NewStringValue(m.Workload)}},
	}}
}

func metadata(namespaces map[string]map[string]*structpb.Value) *corev3.Metadata {
	out := map[string]*structpb.Struct{}
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		if fields := namespaces[name]; len(fields) > 0 {
			out[name] = &structpb.Struct{Fields: fields}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: out}
}

func setText(fields map[string]*structpb.Value, key, value string) {
	if value != "" {
		fields[key] = structpb.NewStringValue(value)
	}
}
