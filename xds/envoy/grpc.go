package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/names"
)

// gRPC clients and servers know only a part of Envoy's API, and refuse resources with
// unknown parts. The messages here use only known parts.

// GRPCClientListener makes the listener of a gRPC client's target, with HTTP filters and
// with routes that come over ADS.
func GRPCClientListener(name, routeConfig string, filters []*hcmv3.HttpFilter) *listenerv3.Listener {
	return grpcClientListener(name, &hcmv3.HttpConnectionManager{
		HttpFilters: filters,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: message.ADS(), RouteConfigName: routeConfig},
		},
	})
}

// EmptyGRPCClientListener makes the listener of a target that leads nowhere: calls fail
// at once as unavailable.
func EmptyGRPCClientListener(name string) *listenerv3.Listener {
	return grpcClientListener(name, &hcmv3.HttpConnectionManager{
		HttpFilters:    []*hcmv3.HttpFilter{RouterFilter()},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: EmptyGRPCRouteConfig(name)},
	})
}

func grpcClientListener(name string, manager *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	manager.StatPrefix = names.HTTPStatPrefix(names.Outbound, name)
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: message.Pack(manager)}}
}

// GRPCServerOptions describe the listener of a gRPC server.
type GRPCServerOptions struct {
	Name, Host string
	Port       uint32
	Filters    []*hcmv3.HttpFilter
	// Transport decrypts connections; nil means plaintext.
	Transport *corev3.TransportSocket
	// Refuses closes every connection.
	Refuses bool
}

// GRPCServerListener makes the listener of a gRPC server at an address. It accepts every call
// that the filters let pass.
func GRPCServerListener(o GRPCServerOptions) *listenerv3.Listener {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix:  names.HTTPStatPrefix(names.Inbound, o.Name),
		HttpFilters: o.Filters,
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: names.InboundCluster(o.Port),
			VirtualHosts: []*routev3.VirtualHost{{
				Name: names.InboundVirtualHost(o.Port), Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Name: names.DefaultRoute, Match: MatchOptions{}.routeMatch(),
					Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
				}},
			}},
		}},
	}
	chain := &listenerv3.FilterChain{
		Name: o.Name, Filters: []*listenerv3.Filter{networkFilter(HTTPConnectionManagerName, manager)}, TransportSocket: o.Transport,
	}
	if o.Refuses { // by a chain for an address from which nobody connects
		chain.FilterChainMatch = &listenerv3.FilterChainMatch{SourcePrefixRanges: []*corev3.CidrRange{{AddressPrefix: "255.255.255.255", PrefixLen: wrapperspb.UInt32(32)}}}
	}
	return &listenerv3.Listener{
		Name: o.Name, Address: message.Address(o.Host, o.Port), TrafficDirection: corev3.TrafficDirection_INBOUND,
		FilterChains: []*listenerv3.FilterChain{chain},
	}
}
