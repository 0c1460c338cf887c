package xds

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/xds/encoded"
	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/stream/nameset"
)

// The fields of requests that are lists of names.
const (
	worldNames       protowire.Number = 3
	deltaSubscribe   protowire.Number = 3
	deltaUnsubscribe protowire.Number = 4
	deltaStated      protowire.Number = 5
)

// wire sends and receives in one of the variants.
type wire interface {
	// receive blocks for the next message, which is there until it is called again;
	// io.EOF where the client ended.
	receive() (*message, error)
	// encode makes the message of a response.
	encode(typeURL string, r *stream.Response) *encoded.Message
	// send blocks until the transport takes the message.
	send(*encoded.Message) error
	// one is the type of all that is said, empty for several.
	one() string
}

// only is the type of the resources of a stream, empty for one of all types.
type only string

func (o only) one() string { return string(o) }

// of finds the type of a request, which a stream of one type need not state.
func (o only) of(typeURL string) (string, error) {
	switch {
	case o == "" || typeURL == string(o):
		return typeURL, nil
	case typeURL == "":
		return string(o), nil
	}
	return "", status.Errorf(codes.InvalidArgument, "a stream of type %s is asked for type %s", o, typeURL)
}

// worldWire is a stream in state of the world.
type worldWire struct {
	only
	encoded *encoded.Cache
	names   *nameset.Table
	stream  grpc.ServerStream
	last    *worldRequest
}

// worldRequest is the last request of a stream.
type worldRequest struct {
	message message
	decoded discoveryv3.DiscoveryRequest
	request encoded.Request
}

func newWorldWire(o only, cache *encoded.Cache, names *nameset.Table, stream grpc.ServerStream) worldWire {
	return worldWire{only: o, encoded: cache, names: names, stream: stream, last: &worldRequest{}}
}

func (w worldWire) receive() (*message, error) {
	q, r := &w.last.decoded, &w.last.request
	q.Reset()
	w.last.message = message{}
	*r = encoded.Request{Into: q, Table: w.names, Lists: [2]encoded.List{{Field: worldNames}}}
	if err := w.stream.RecvMsg(r); err != nil {
		return nil, err
	}
	typeURL, err := w.only.of(q.GetTypeUrl())
	if err != nil {
		return nil, err
	}
	w.last.message = message{node: q.GetNode(), typeURL: typeURL, request: stream.Request{
		Names: w.names.With(r.Lists[0].Names, q.GetResourceNames()...), Version: q.GetVersionInfo(), Nonce: q.GetResponseNonce(),
		Rejected: q.GetErrorDetail() != nil, Message: q.GetErrorDetail().GetMessage(),
	}}
	return &w.last.message, nil
}

func (w worldWire) encode(typeURL string, r *stream.Response) *encoded.Message {
	return w.encoded.World(encoded.Header{TypeURL: typeURL, Nonce: r.Nonce, Version: r.Version}, r.Resources)
}

func (w worldWire) send(m *encoded.Message) error { return w.stream.SendMsg(m) }

// deltaWire is a stream in delta.
type deltaWire struct {
	only
	encoded *encoded.Cache
	names   *nameset.Table
	stream  grpc.ServerStream
	last    *deltaRequest
}

// deltaRequest is the last request of a stream.
type deltaRequest struct {
	message message
	decoded discoveryv3.DeltaDiscoveryRequest
	request encoded.Request
}

func newDeltaWire(o only, cache *encoded.Cache, names *nameset.Table, stream grpc.ServerStream) deltaWire {
	return deltaWire{only: o, encoded: cache, names: names, stream: stream, last: &deltaRequest{}}
}

func (w deltaWire) receive() (*message, error) {
	q, r := &w.last.decoded, &w.last.request
	q.Reset()
	w.last.message = message{}
	*r = encoded.Request{
		Into: q, Table: w.names, Lists: [2]encoded.List{{Field: deltaSubscribe}, {Field: deltaUnsubscribe}},
		Stated: encoded.Stated{Field: deltaStated},
	}
	if err := w.stream.RecvMsg(r); err != nil {
		return nil, err
	}
	typeURL, err := w.only.of(q.GetTypeUrl())
	if err != nil {
		return nil, err
	}
	if len(q.GetInitialResourceVersions()) > 0 { // without the codec
		r.Stated.Versions = stream.VersionsIn(q.GetInitialResourceVersions())
	}
	w.last.message = message{node: q.GetNode(), typeURL: typeURL, request: stream.Request{
		Subscribe:   w.names.With(r.Lists[0].Names, q.GetResourceNamesSubscribe()...),
		Unsubscribe: w.names.With(r.Lists[1].Names, q.GetResourceNamesUnsubscribe()...),
		Initial:     r.Stated.Versions, Nonce: q.GetResponseNonce(),
		Rejected: q.GetErrorDetail() != nil, Message: q.GetErrorDetail().GetMessage(),
	}}
	return &w.last.message, nil
}

func (w deltaWire) encode(typeURL string, r *stream.Response) *encoded.Message {
	return w.encoded.Delta(encoded.Header{TypeURL: typeURL, Nonce: r.Nonce, Version: r.Version}, r.Resources, r.Removed)
}

func (w deltaWire) send(m *encoded.Message) error { return w.stream.SendMsg(m) }
