package xds

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/xds/encoded"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// maxRequest fits the names of an Envoy with tens of thousands of clusters.
const maxRequest = 64 << 20

// A client may send unread of a stream no more than gRPC lets it at least: that is
// what a proxy holds here that waits for its turn. A message that is being read has
// room for all of itself. Neither window follows the link, since gRPC would measure
// that with a ping for each acknowledgement, as much work as the response itself.
const streamWindow, connectionWindow = 64 << 10, 1 << 20

// ServerOptions are what a gRPC server needs that serves xDS: responses go out as
// shared buffers, and a connection that is idle holds little.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(encoded.Codec()),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.ReadBufferSize(4 << 10),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
	}
}

// Register adds the services of the server to a gRPC server, which should be made
// with ServerOptions: the aggregated one, and one for each type of the API, whose
// streams are of that type alone.
func (s *DiscoveryServer) Register(g grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	for _, service := range services() {
		g.RegisterService(s.describe(service), s)
	}
}

// service is a service for one type. Its method Fetch, where the API has one, is
// not implemented.
type service struct {
	name, typeURL string
	stream, delta string // the methods; empty for none
	metadata      string
}

func services() []service {
	const api = "type.googleapis.com/envoy."
	return []service{
		{
			name: "envoy.service.cluster.v3.ClusterDiscoveryService", typeURL: api + "config.cluster.v3.Cluster",
			stream: "StreamClusters", delta: "DeltaClusters", metadata: "envoy/service/cluster/v3/cds.proto",
		},
		{
			name: "envoy.service.endpoint.v3.EndpointDiscoveryService", typeURL: api + "config.endpoint.v3.ClusterLoadAssignment",
			stream: "StreamEndpoints", delta: "DeltaEndpoints", metadata: "envoy/service/endpoint/v3/eds.proto",
		},
		{
			name: "envoy.service.listener.v3.ListenerDiscoveryService", typeURL: api + "config.listener.v3.Listener",
			stream: "StreamListeners", delta: "DeltaListeners", metadata: "envoy/service/listener/v3/lds.proto",
		},
		{
			name: "envoy.service.route.v3.RouteDiscoveryService", typeURL: api + "config.route.v3.RouteConfiguration",
			stream: "StreamRoutes", delta: "DeltaRoutes", metadata: "envoy/service/route/v3/rds.proto",
		},
		{
			name: "envoy.service.route.v3.VirtualHostDiscoveryService", typeURL: api + "config.route.v3.VirtualHost",
			delta: "DeltaVirtualHosts", metadata: "envoy/service/route/v3/rds.proto",
		},
		{
			name: "envoy.service.secret.v3.SecretDiscoveryService", typeURL: api + "extensions.transport_sockets.tls.v3.Secret",
			stream: "StreamSecrets", delta: "DeltaSecrets", metadata: "envoy/service/secret/v3/sds.proto",
		},
	}
}

// describe is what gRPC has to know of a service.
func (s *DiscoveryServer) describe(service service) *grpc.ServiceDesc {
	methods := []grpc.StreamDesc{
		{StreamName: service.stream, Handler: func(_ any, g grpc.ServerStream) error { return s.serveWorld(only(service.typeURL), g) }},
		{StreamName: service.delta, Handler: func(_ any, g grpc.ServerStream) error { return s.serveDelta(only(service.typeURL), g) }},
	}
	methods = slices.DeleteFunc(methods, func(m grpc.StreamDesc) bool { return m.StreamName == "" })
	for i := range methods {
		methods[i].ServerStreams, methods[i].ClientStreams = true, true
	}
	return &grpc.ServiceDesc{ServiceName: service.name, HandlerType: (*any)(nil), Streams: methods, Metadata: service.metadata}
}

// StreamAggregatedResources implements ADS in state of the world.
func (s *DiscoveryServer) StreamAggregatedResources(g discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serveWorld("", g)
}

// DeltaAggregatedResources implements ADS in delta.
func (s *DiscoveryServer) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serveDelta("", g)
}

func (s *DiscoveryServer) serveWorld(o only, g grpc.ServerStream) error {
	return s.serve(g.Context(), stream.StateOfTheWorld, newWorldWire(o, s.encoded, s.names, g))
}

func (s *DiscoveryServer) serveDelta(o only, g grpc.ServerStream) error {
	return s.serve(g.Context(), stream.Delta, newDeltaWire(o, s.encoded, s.names, g))
}
