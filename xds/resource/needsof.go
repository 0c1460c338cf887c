package resource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/redis_proxy/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// NeedsOf returns the needs of a resource, found in its message: the clusters that it sends
// traffic to, its endpoints, route configurations and virtual hosts, the secrets and the
// configurations of filters that come over xDS, and the time for looking up host names. Each is there once, in order. A generator knows
// the needs of what it makes; this is for messages that others have changed. Nothing is known of an
// embedded message of an unknown type; it fails if one of a known type cannot be read.
func NeedsOf(message proto.Message) ([]Need, error) {
	f := finder{}
	if err := f.visit(message.ProtoReflect()); err != nil {
		return nil, err
	}
	return Ordered(f.needs), nil
}

// Ordered returns needs in order, each once.
func Ordered(needs []Need) []Need {
	out := slices.Clone(needs)
	slices.SortFunc(out, func(a, b Need) int {
		return cmp.Or(cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.Compact(out)
}

type finder struct{ needs []Need }

func (f *finder) add(typeURL, name string, kind NeedKind) {
	if name != "" || kind == Grace {
		f.needs = append(f.needs, Need{typeURL, name, kind})
	}
}

// visit finds the needs of a message and of those within it.
func (f *finder) visit(m protoreflect.Message) error {
	switch m := m.Interface().(type) {
	case *anypb.Any:
		inner, err := m.UnmarshalNew()
		if errors.Is(err, protoregistry.NotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the needs of %s: %w", m.GetTypeUrl(), err)
		}
		return f.visit(inner.ProtoReflect())
	case *clusterv3.Cluster:
		switch m.GetType() {
		case clusterv3.Cluster_EDS:
			f.add(EndpointType, cmp.Or(m.GetEdsClusterConfig().GetServiceName(), m.GetName()), Covered)
		case clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_LOGICAL_DNS:
			f.add("", "", Grace)
		}
	case *dnsv3.DnsCluster:
		f.add("", "", Grace)
	case *hcmv3.Rds:
		f.add(RouteType, m.GetRouteConfigName(), Warm)
	case *routev3.RouteConfiguration:
		if m.GetVhds() != nil {
			f.add(VirtualHostType, m.GetName(), Within)
		}
	case *routev3.RouteAction:
		f.add(ClusterType, m.GetCluster(), Traffic)
	case *routev3.WeightedCluster_ClusterWeight:
		f.add(ClusterType, m.GetName(), Traffic)
	case *routev3.RouteAction_RequestMirrorPolicy:
		f.add(ClusterType, m.GetCluster(), Traffic)
	case *tcpproxyv3.TcpProxy:
		f.add(ClusterType, m.GetCluster(), Traffic)
	case *tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight:
		f.add(ClusterType, m.GetName(), Traffic)
	case *corev3.GrpcService_EnvoyGrpc:
		f.add(ClusterType, m.GetClusterName(), Traffic)
	case *corev3.HttpUri:
		f.add(ClusterType, m.GetCluster(), Traffic)
	case *redisv3.RedisProxy_PrefixRoutes_Route:
		f.add(ClusterType, m.GetCluster(), Traffic)
	case *hcmv3.HttpFilter:
		if m.GetConfigDiscovery().GetConfigSource().GetAds() != nil {
			f.add(ExtensionType, m.GetName(), Once)
		}
	case *corev3.ApiConfigSource:
		return nil // of a cluster of the bootstrap
	case *tracev3.DatadogConfig:
		f.add(ClusterType, m.GetCollectorCluster(), Traffic)
	case *listenerv3.Filter:
		if m.GetConfigDiscovery().GetConfigSource().GetAds() != nil {
			f.add(ExtensionType, m.GetName(), Once)
		}
	case *tlsv3.SdsSecretConfig:
		if m.GetSdsConfig().GetAds() != nil {
			f.add(SecretType, m.GetName(), Once)
		}
	}
	var err error
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					err = f.visit(v.Message())
					return err == nil
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				if err = f.visit(v.List().Get(i).Message()); err != nil {
					break
				}
			}
		default:
			err = f.visit(v.Message())
		}
		return err == nil
	})
	return err
}
