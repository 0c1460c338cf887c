package envoy

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
)

// GRPCWebFilter makes the filter that translates the gRPC-Web of browsers to gRPC. It passes on
// everything else. If it is not for all requests, it works on the routes with
// [Forward.GRPCWeb].
func GRPCWebFilter(all bool) *hcmv3.HttpFilter {
	out := httpFilter(GRPCWebName, &grpcwebv3.GrpcWeb{})
	out.Disabled = !all
	return out
}

// enabled is the configuration of a route that has a disabled filter work there.
func enabled() *anypb.Any { return message.Pack(&routev3.FilterConfig{Config: &anypb.Any{}}) }
