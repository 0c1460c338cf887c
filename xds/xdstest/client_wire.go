package xdstest

import (
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	mcp "istio.io/api/mcp/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/names/nds"
)

// worldClient speaks state-of-the-world ADS.
type worldClient struct {
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func (w worldClient) send(q clientRequest) error {
	return w.stream.Send(&discoveryv3.DiscoveryRequest{
		Node: q.node, TypeUrl: q.typeURL, ResourceNames: q.names,
		VersionInfo: q.version, ResponseNonce: q.nonce, ErrorDetail: q.rejection,
	})
}

func (w worldClient) receive() (*Answer, error) {
	r, err := w.stream.Recv()
	if err != nil {
		return nil, err
	}
	a := &Answer{TypeURL: r.GetTypeUrl(), Nonce: r.GetNonce(), Version: r.GetVersionInfo(), Resources: map[string]Held{}}
	for _, body := range r.GetResources() {
		name, err := nameOf(body)
		if err != nil {
			return nil, err
		}
		a.Resources[name] = Held{Body: body}
	}
	return a, nil
}

// deltaClient speaks delta ADS. Requests do not repeat names, so an acknowledgement is just a
// nonce.
type deltaClient struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (w deltaClient) send(q clientRequest) error {
	nonce := q.nonce
	if len(q.subscribe)+len(q.unsubscribe) > 0 {
		nonce = "" // a change of subscriptions acknowledges nothing
	}
	return w.stream.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node: q.node, TypeUrl: q.typeURL, ResourceNamesSubscribe: q.subscribe, ResourceNamesUnsubscribe: q.unsubscribe,
		InitialResourceVersions: q.initial, ResponseNonce: nonce, ErrorDetail: q.rejection,
	})
}

func (w deltaClient) receive() (*Answer, error) {
	r, err := w.stream.Recv()
	if err != nil {
		return nil, err
	}
	a := &Answer{
		TypeURL: r.GetTypeUrl(), Nonce: r.GetNonce(), Version: r.GetSystemVersionInfo(),
		Resources: map[string]Held{}, Removed: r.GetRemovedResources(),
	}
	for _, resource := range r.GetResources() {
		a.Resources[resource.GetName()] = Held{Version: resource.GetVersion(), Body: resource.GetResource()}
	}
	return a, nil
}

// nameOf reads the name that a resource has in its body.
func nameOf(body *anypb.Any) (string, error) {
	message, err := body.UnmarshalNew()
	if err != nil {
		return "", err
	}
	switch m := message.(type) {
	case *endpointv3.ClusterLoadAssignment:
		return m.GetClusterName(), nil
	case *mcp.Resource:
		return m.GetMetadata().GetName(), nil
	case *nds.NameTable:
		return nds.TableName, nil
	case *nds.Host:
		for h := range m.GetTable() {
			return nds.TableName + "/" + h, nil
		}
	}
	named, ok := message.(interface{ GetName() string })
	if !ok {
		return "", fmt.Errorf("a resource of type %s has no name", body.GetTypeUrl())
	}
	return named.GetName(), nil
}

// childrenOf returns the names that a proxy requests because of a cluster or a listener.
func childrenOf(body *anypb.Any) ([]string, error) {
	message, err := body.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	switch m := message.(type) {
	case *clusterv3.Cluster:
		if m.GetType() != clusterv3.Cluster_EDS {
			return nil, nil
		}
		if name := m.GetEdsClusterConfig().GetServiceName(); name != "" {
			return []string{name}, nil
		}
		return []string{m.GetName()}, nil
	case *listenerv3.Listener:
		return routesOf(m)
	case *routev3.RouteConfiguration, *endpointv3.ClusterLoadAssignment:
		return nil, nil
	}
	return nil, fmt.Errorf("children of a %s are not known", body.GetTypeUrl())
}

func routesOf(l *listenerv3.Listener) ([]string, error) {
	chains := l.GetFilterChains()
	if l.GetDefaultFilterChain() != nil {
		chains = append(chains[:len(chains):len(chains)], l.GetDefaultFilterChain())
	}
	var out []string
	for _, chain := range chains {
		for _, filter := range chain.GetFilters() {
			manager := &hcmv3.HttpConnectionManager{}
			if !filter.GetTypedConfig().MessageIs(manager) {
				continue
			}
			if err := filter.GetTypedConfig().UnmarshalTo(manager); err != nil {
				return nil, err
			}
			if name := manager.GetRds().GetRouteConfigName(); name != "" {
				out = append(out, name)
			}
		}
	}
	return out, nil
}

// isKind reports whether a type URL is a kind of objects, as other control planes request it.
func isKind(typeURL string) bool { return !strings.HasPrefix(typeURL, "type.googleapis.com/") }

// NewConfigNode makes the node of a control plane that imports the objects of the mesh. Like
// Istio's, it identifies itself as a sidecar.
func NewConfigNode(name, namespace string) *corev3.Node {
	return &corev3.Node{
		Id:       "sidecar~~" + name + "." + namespace + "~" + namespace + ".svc.cluster.local",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"GENERATOR": structpb.NewStringValue("api")}},
	}
}

// NewNode makes the node of a proxy, of type sidecar or router, that captures
// no traffic.
func NewNode(proxyType, ip, name, namespace string, labels map[string]string) *corev3.Node {
	fields := make(map[string]*structpb.Value, len(labels))
	for k, v := range labels {
		fields[k] = structpb.NewStringValue(v)
	}
	return &corev3.Node{
		Id: proxyType + "~" + ip + "~" + name + "~" + namespace + ".svc.cluster.local",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"NAMESPACE":         structpb.NewStringValue(namespace),
			"INTERCEPTION_MODE": structpb.NewStringValue("NONE"),
			"LABELS":            structpb.NewStructValue(&structpb.Struct{Fields: fields}),
		}},
	}
}
