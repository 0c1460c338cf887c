package xds

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/encode"
	"github.com/portolan-mesh/portolan/xds/progress"
)

const (
	// requestPiece is how many bytes of a request are read at one time. The budget is
	// charged only for a larger request, since gRPC buffers almost as much anyway.
	requestPiece = 256 << 10
	// requestTimeout is how long a client may take to begin its first request, and to
	// send each piece of a request that it has begun.
	requestTimeout = 10 * time.Second
)

// transport reads the bytes of a call's messages, each after a header of five bytes.
// Streams of a gRPC server implement it. Their RecvMsg returns only once a whole
// message is there, so it cannot tell that a client began one.
type transport interface {
	ReadMessageHeader(head []byte) error
	Read(n int) (mem.BufferSlice, error)
}

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
	// Every request is decoded into the fields below.
	last  message
	sotw  discoveryv3.DiscoveryRequest
	delta discoveryv3.DeltaDiscoveryRequest
	lists encode.Request
}

// request has the methods that the requests of both variants share.
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
	}, code: codes.Code(q.GetErrorDetail().GetCode())} //nolint:gosec // any number is a code
	if r := &w.last.request; w.variant == protocol.Delta {
		r.Subscribe, r.Unsubscribe, r.Initial = w.lists.Names[0], w.lists.Names[1], w.lists.Stated
	} else {
		r.Names, r.Version = w.lists.Names[0], w.sotw.GetVersionInfo()
	}
	return &w.last, nil
}

// begin blocks until the client begins a request. It returns io.EOF if the client ended the
// stream.
func (w *wire) begin() error {
	err := w.from.ReadMessageHeader(w.head[:])
	w.heard()
	return err
}

func (w *wire) heard() { w.heardAt.Store(time.Now().UnixNano()) }

// lastHeard returns when the client last sent something.
func (w *wire) lastHeard() time.Time { return time.Unix(0, w.heardAt.Load()) }

// readMessage reads and decodes the request whose header begin has read. The stream ends if
// the client takes longer than requestTimeout for a piece of it.
func (w *wire) readMessage(into *encode.Request) error {
	stream, size := w.c.admitted, int(binary.BigEndian.Uint32(w.head[1:]))
	switch {
	case w.head[0] != 0:
		return status.Error(codes.Unimplemented, "a request is compressed, and this server reads none that is: have the client send them as they are")
	case int64(size) > into.Limit:
		return stream.TooMuch(fmt.Sprintf("a request of %d bytes", size))
	}
	defer stream.Drop(w)
	var data mem.BufferSlice
	defer func() { data.Free() }()
	for read := 0; read < size; {
		n := min(size-read, requestPiece)
		w.c.receiving.Reset(requestTimeout)
		piece, err := w.from.Read(n)
		w.c.receiving.Stop()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return status.Error(codes.Internal, "the stream ended in the middle of a request")
		} else if err != nil {
			return err
		}
		w.heard()
		if data == nil {
			data = piece // usually all there is
		} else {
			data = append(data, piece...)
		}
		if read += n; read > requestPiece {
			stream.Hold(w, 2*int64(read)) // the pieces, and one copy of them to decode
		}
	}
	if err := into.Decode(data); err != nil {
		if tooMuch := (*encode.TooMuchError)(nil); errors.As(err, &tooMuch) {
			return stream.TooMuch(tooMuch.Error())
		}
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (w *wire) encode(typeURL string, r *protocol.Response) *encode.Message {
	header := encode.Header{TypeURL: typeURL, Nonce: r.Nonce, Version: r.Version}
	if w.variant == protocol.Delta {
		return w.c.server.encoded.Delta(header, r.Resources, r.Removed)
	}
	return w.c.server.encoded.World(header, r.Resources)
}

// send blocks until the transport takes the message.
func (w *wire) send(m *encode.Message) error { return w.stream.SendMsg(m) }
