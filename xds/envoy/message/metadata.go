package message

import (
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"google.golang.org/protobuf/types/known/structpb"
)

// The namespaces in metadata.
const (
	istioMetadata           = "istio"
	transportSocketMetadata = "envoy.transport_socket_match"
)

// ServiceRef is a service in a cluster's metadata.
type ServiceRef struct{ Host, Name, Namespace string }

// ClusterMetadata describes the origin of a cluster, in the namespace "istio".
type ClusterMetadata struct {
	Config   string // names.ConfigPath of its DestinationRule, empty for none
	Subset   string
	Services []ServiceRef
	External bool // the services are outside the mesh
	// KeepALPN tells Istio's ALPN filter, if present, not to change the application
	// protocols.
	KeepALPN bool
}

// Message makes the metadata, nil if it would be empty.
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

// ConfigMetadata makes the metadata of a route or cluster with the names.ConfigPath of
// its origin.
func ConfigMetadata(path string) *corev3.Metadata { return ClusterMetadata{Config: path}.Message() }

// ConfigOf returns the names.ConfigPath in metadata, empty for none.
func ConfigOf(m *corev3.Metadata) string {
	return m.GetFilterMetadata()[istioMetadata].GetFields()["config"].GetStringValue()
}

// EndpointMetadata describes an endpoint's workload.
type EndpointMetadata struct {
	// Workload is "name;namespace;canonical service;revision;cluster", the format of
	// Istio's telemetry.
	Workload string
	// TLSMode selects among the cluster's transport sockets: "istio" for mutual TLS,
	// empty for none.
	TLSMode string
}

// Message makes the metadata, nil if it would be empty.
func (m EndpointMetadata) Message() *corev3.Metadata {
	if m.TLSMode == "" {
		return m.workload()
	}
	workload, socket := map[string]*structpb.Value{}, map[string]*structpb.Value{}
	setText(workload, "workload", m.Workload)
	setText(socket, "tlsMode", m.TLSMode)
	return metadata(map[string]map[string]*structpb.Value{istioMetadata: workload, transportSocketMetadata: socket})
}

// workload makes the metadata of an endpoint without a TLS mode. It allocates little,
// since an assignment has many endpoints.
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
