package refmesh

import (
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Patch returns an EnvoyFilter for the whole mesh. In turns they change the cluster of one service and
// all clusters, add an HTTP filter to what comes in, change the virtual host of one service, and all
// routes.
func (m Mesh) Patch(i int) *config.Config {
	one := i * Namespaces % m.Services
	header := func(field string) map[string]any {
		return map[string]any{field: []any{fmt.Sprintf("x-patch-%d", i)}}
	}
	var patch *networking.EnvoyFilter_EnvoyConfigObjectPatch
	switch i % 5 {
	case 0:
		patch = merged(networking.EnvoyFilter_CLUSTER, map[string]any{"connect_timeout": fmt.Sprintf("%ds", i+1)})
		patch.Match.ObjectTypes = &networking.EnvoyFilter_EnvoyConfigObjectMatch_Cluster{Cluster: &networking.EnvoyFilter_ClusterMatch{Service: m.Host(one)}}
	case 1:
		patch = merged(networking.EnvoyFilter_CLUSTER, map[string]any{"per_connection_buffer_limit_bytes": (i + 1) << 15})
	case 2:
		patch = merged(networking.EnvoyFilter_HTTP_FILTER, map[string]any{
			"name": fmt.Sprintf("buffer-%d", i),
			"typed_config": map[string]any{
				"@type":             "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
				"max_request_bytes": 1 << 20,
			},
		})
		patch.Patch.Operation, patch.Match.Context = networking.EnvoyFilter_Patch_INSERT_BEFORE, networking.EnvoyFilter_SIDECAR_INBOUND
		patch.Match.ObjectTypes = &networking.EnvoyFilter_EnvoyConfigObjectMatch_Listener{Listener: &networking.EnvoyFilter_ListenerMatch{
			FilterChain: &networking.EnvoyFilter_ListenerMatch_FilterChainMatch{Filter: &networking.EnvoyFilter_ListenerMatch_FilterMatch{
				Name:      "envoy.filters.network.http_connection_manager",
				SubFilter: &networking.EnvoyFilter_ListenerMatch_SubFilterMatch{Name: "envoy.filters.http.router"},
			}},
		}}
	case 3:
		patch = merged(networking.EnvoyFilter_VIRTUAL_HOST, header("response_headers_to_remove"))
		patch.Match.ObjectTypes = &networking.EnvoyFilter_EnvoyConfigObjectMatch_RouteConfiguration{RouteConfiguration: &networking.EnvoyFilter_RouteConfigurationMatch{
			Vhost: &networking.EnvoyFilter_RouteConfigurationMatch_VirtualHostMatch{Name: fmt.Sprintf("%s:%d", m.Host(one), HTTPPort)},
		}}
	default:
		patch = merged(networking.EnvoyFilter_HTTP_ROUTE, header("request_headers_to_remove"))
	}
	return &config.Config{Meta: meta(schema.EnvoyFilter, RootNamespace, fmt.Sprintf("patch-%d", i)), Spec: &networking.EnvoyFilter{
		ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{patch},
	}}
}

// merged is a patch that merges a value into all that goes out of sidecars.
func merged(to networking.EnvoyFilter_ApplyTo, value map[string]any) *networking.EnvoyFilter_EnvoyConfigObjectPatch {
	of, err := structpb.NewStruct(value)
	if err != nil {
		panic(err) // a value that is no JSON
	}
	return &networking.EnvoyFilter_EnvoyConfigObjectPatch{
		ApplyTo: to,
		Match:   &networking.EnvoyFilter_EnvoyConfigObjectMatch{Context: networking.EnvoyFilter_SIDECAR_OUTBOUND},
		Patch:   &networking.EnvoyFilter_Patch{Operation: networking.EnvoyFilter_Patch_MERGE, Value: of},
	}
}
