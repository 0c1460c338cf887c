package xds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds/encode"
)

const (
	// requestPiece is how much of a request is read at one time. So much of it is not
	// charged to the budget: it is little more than gRPC buffers anyway.
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

// begin blocks until the client begins a request; io.EOF where it ended the stream.
func (w *wire) begin() error {
	err := w.from.ReadMessageHeader(w.head[:])
	w.heard()
	return err
}

func (w *wire) heard() { w.heardAt.Store(time.Now().UnixNano()) }

// lastHeard returns when the client last sent something.
func (w *wire) lastHeard() time.Time { return time.Unix(0, w.heardAt.Load()) }

// readMessage reads and decodes the request whose header begin has read. The client must keep
// sending pieces of it.
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
	if err := encode.Codec().Unmarshal(data, into); err != nil {
		if tooMuch := (*encode.TooMuchError)(nil); errors.As(err, &tooMuch) {
			return stream.TooMuch(tooMuch.Error())
		}
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}
