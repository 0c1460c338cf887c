package xds

import (
	"cmp"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/encode"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// wire receives and sends the messages of a stream, in one variant of the protocol. One
// goroutine receives.
type wire struct {
	only    string // the type of a stream of one type, and empty for an aggregated stream
	variant protocol.Variant
	from    transport
	stream  grpc.ServerStream
	c       *Connection
	head    [5]byte      // header of the current request: whether it is compressed, and its size
	heardAt atomic.Int64 // when the last piece of a request came, in Unix nanoseconds
	// What the last request was decoded into, which the next one is decoded into too.
	last  message
	sotw  discoveryv3.DiscoveryRequest
	delta discoveryv3.DeltaDiscoveryRequest
	lists encode.Request
}

// request is what the requests of both variants have.
type request interface {
	proto.Message
	GetNode() *corev3.Node
	GetTypeUrl() string
	GetResponseNonce() string
	GetErrorDetail() *rpcstatus.Status
}

// receive blocks for the rest of the message that the client began. The message is
// valid until the next call.
func (w *wire) receive() (*message, error) {
	var q request
	if w.variant == protocol.Delta {
		w.delta.Reset()
		q = &w.delta
	} else {
		w.sotw.Reset()
		q = &w.sotw
	}
	w.last = message{}
	w.lists = encode.Request{Variant: w.variant, Into: q, Table: w.c.server.names, Limit: w.c.server.Gate.StreamMemory()}
	if err := w.readMessage(&w.lists); err != nil {
		return nil, err
	}
	typeURL := cmp.Or(q.GetTypeUrl(), w.only) // a request on a stream of one type need not state it
	if w.only != "" && typeURL != w.only {
		return nil, status.Errorf(codes.InvalidArgument, "this stream serves type %s, and a request on it names type %s", w.only, typeURL)
	}
	w.last = message{node: q.GetNode(), typeURL: typeURL, request: protocol.Request{
		Nonce: q.GetResponseNonce(), Rejected: q.GetErrorDetail() != nil,
		Message: progress.Shorten(q.GetErrorDetail().GetMessage(), maxComplaint),
	}}
	if r := &w.last.request; w.variant == protocol.Delta {
		r.Subscribe, r.Unsubscribe, r.Initial = w.lists.Names[0], w.lists.Names[1], w.lists.Stated
	} else {
		r.Names, r.Version = w.lists.Names[0], w.sotw.GetVersionInfo()
	}
	return &w.last, nil
}

// encode makes the message of a response.
func (w *wire) encode(typeURL string, r *protocol.Response) *encode.Message {
	header := encode.Header{TypeURL: typeURL, Nonce: r.Nonce, Version: r.Version}
	if w.variant == protocol.Delta {
		return w.c.server.encoded.Delta(header, r.Resources, r.Removed)
	}
	return w.c.server.encoded.World(header, r.Resources)
}

// send blocks until the transport takes the message.
func (w *wire) send(m *encode.Message) error { return w.stream.SendMsg(m) }
