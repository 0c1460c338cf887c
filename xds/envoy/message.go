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

// pack wraps m, in bytes that are the same every time. A message of valid
// strings always marshals; anything else is an error of the caller.
func pack(m proto.Message) *anypb.Any {
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Sprintf("envoy: marshal %s: %v", m.ProtoReflect().Descriptor().FullName(), err))
	}
	return out
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

// fitWeights returns weights of which none is 0 and whose sum Envoy accepts:
// where it is beyond 32 bits all are scaled down alike.
func fitWeights(weights []uint32) []uint32 {
	out := make([]uint32, len(weights))
	var sum uint64
	for i, w := range weights {
		out[i] = max(w, 1)
		sum += uint64(out[i])
	}
	if sum <= math.MaxUint32 {
		return out
	}
	// Rounding a weight up to 1 adds less than one for each, hence the margin.
	divisor := sum/(math.MaxUint32-uint64(len(out))) + 1
	for i, w := range out {
		out[i] = uint32(max(uint64(w)/divisor, 1))
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

// ClusterMetadata is what a cluster tells of its origin, in namespace "istio".
type ClusterMetadata struct {
	Config   string // ConfigPath of its DestinationRule, empty for none
	Subset   string
	Services []ServiceRef
	External bool // the services are outside the mesh
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
	return metadata(map[string]map[string]*structpb.Value{istioMetadata: fields})
}

// ConfigMetadata is the metadata of a route or cluster: where it comes from, as
// ConfigPath names it.
func ConfigMetadata(path string) *corev3.Metadata { return ClusterMetadata{Config: path}.Message() }

// ConfigOf is the ConfigPath in metadata, empty where there is none.
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
	workload, socket := map[string]*structpb.Value{}, map[string]*structpb.Value{}
	setText(workload, "workload", m.Workload)
	setText(socket, "tlsMode", m.TLSMode)
	return metadata(map[string]map[string]*structpb.Value{istioMetadata: workload, transportSocketMetadata: socket})
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
