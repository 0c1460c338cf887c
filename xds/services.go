package xds

import (
	"strings"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extensionservice "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/encode"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// A client may send 64 KiB on a stream before the server reads it. That is the least that
// gRPC allows, and the memory that each waiting proxy costs. gRPC widens the window for a
// message that is being read. Both windows are static: to adapt them gRPC would send a ping
// for each acknowledgement, as much work as the response itself.
// https://github.com/grpc/grpc.github.io/pull/549
const streamWindow, connectionWindow = 64 << 10, 1 << 20

// handshakeTimeout bounds the HTTP/2 handshake of a client, and maxHeaders the bytes of its
// headers. A client needs a few hundred bytes.
const handshakeTimeout, maxHeaders = 10 * time.Second, 16 << 10

// ServerOptions returns the options of a gRPC server that serves xDS: it sends
// responses as shared buffers, and an idle connection holds little memory.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(encode.Codec()),
		grpc.ReadBufferSize(4 << 10), grpc.MaxHeaderListSize(maxHeaders), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
	}
}

// Register adds the xDS services to a gRPC server, which must be made with
// ServerOptions: the aggregated service, and a service of its own for each type of the
// API.
func (s *DiscoveryServer) Register(g grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	for typeURL, service := range map[string]*grpc.ServiceDesc{
		resource.ClusterType:     &clusterservice.ClusterDiscoveryService_ServiceDesc,
		resource.EndpointType:    &endpointservice.EndpointDiscoveryService_ServiceDesc,
		resource.ListenerType:    &listenerservice.ListenerDiscoveryService_ServiceDesc,
		resource.RouteType:       &routeservice.RouteDiscoveryService_ServiceDesc,
		resource.VirtualHostType: &routeservice.VirtualHostDiscoveryService_ServiceDesc,
		resource.ExtensionType:   &extensionservice.ExtensionConfigDiscoveryService_ServiceDesc,
		resource.SecretType:      &secretservice.SecretDiscoveryService_ServiceDesc,
	} {
		g.RegisterService(s.describe(typeURL, service), s)
	}
}

// describe returns the description of the service of one type, whose streams the server
// serves. Its method Fetch, if the API has one, is not implemented.
func (s *DiscoveryServer) describe(typeURL string, service *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := &grpc.ServiceDesc{ServiceName: service.ServiceName, HandlerType: (*any)(nil), Metadata: service.Metadata}
	for _, stream := range service.Streams {
		variant := protocol.StateOfTheWorld
		if strings.HasPrefix(stream.StreamName, "Delta") {
			variant = protocol.Delta
		}
		stream.Handler = func(_ any, g grpc.ServerStream) error { return s.serve(variant, typeURL, g) }
		out.Streams = append(out.Streams, stream)
	}
	return out
}

// StreamAggregatedResources implements ADS in state of the world.
func (s *DiscoveryServer) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(protocol.StateOfTheWorld, "", g)
}

// DeltaAggregatedResources implements ADS in delta.
func (s *DiscoveryServer) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(protocol.Delta, "", g)
}
