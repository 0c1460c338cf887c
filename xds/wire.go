package xds

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/stream"
)

// controlPlane names this server in its responses.
var controlPlane = &corev3.ControlPlane{Identifier: "portolan"}

// worldWire is ADS in state of the world.
type worldWire struct {
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
}

func (w worldWire) receive() (*message, error) {
	q, err := w.stream.Recv()
	if err != nil {
		return nil, err
	}
	return &message{node: q.GetNode(), typeURL: q.GetTypeUrl(), request: stream.Request{
		Names: q.GetResourceNames(), Version: q.GetVersionInfo(), Nonce: q.GetResponseNonce(),
		Rejected: q.GetErrorDetail() != nil, Message: q.GetErrorDetail().GetMessage(),
	}}, nil
}

func (w worldWire) send(typeURL string, r *stream.Response) error {
	out := &discoveryv3.DiscoveryResponse{
		TypeUrl: typeURL, Nonce: r.Nonce, VersionInfo: r.Version, ControlPlane: controlPlane,
		Resources: make([]*anypb.Any, len(r.Resources)),
	}
	for i, res := range r.Resources {
		out.Resources[i] = res.Body
	}
	return w.stream.Send(out)
}

// deltaWire is ADS in delta.
type deltaWire struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
}

func (w deltaWire) receive() (*message, error) {
	q, err := w.stream.Recv()
	if err != nil {
		return nil, err
	}
	return &message{node: q.GetNode(), typeURL: q.GetTypeUrl(), request: stream.Request{
		Subscribe: q.GetResourceNamesSubscribe(), Unsubscribe: q.GetResourceNamesUnsubscribe(),
		Initial: q.GetInitialResourceVersions(), Nonce: q.GetResponseNonce(),
		Rejected: q.GetErrorDetail() != nil, Message: q.GetErrorDetail().GetMessage(),
	}}, nil
}

func (w deltaWire) send(typeURL string, r *stream.Response) error {
	out := &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: typeURL, Nonce: r.Nonce, SystemVersionInfo: fmt.Sprint(r.Revision), ControlPlane: controlPlane,
		Resources: make([]*discoveryv3.Resource, len(r.Resources)), RemovedResources: r.Removed,
	}
	for i, res := range r.Resources {
		out.Resources[i] = &discoveryv3.Resource{Name: res.Name, Version: res.Version, Resource: res.Body}
	}
	return w.stream.Send(out)
}
