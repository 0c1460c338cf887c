package xds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
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
	RecvCompress() string
}

// incoming reads the requests of a stream in pieces. One goroutine reads.
type incoming struct {
	from    transport
	c       *Connection
	head    [5]byte      // header of the current message: whether it is compressed, and its size
	heardAt atomic.Int64 // when the last piece came, in Unix nanoseconds
}

// begin blocks until the client begins a request; io.EOF where it ended the stream.
func (i *incoming) begin() error {
	err := i.from.ReadMessageHeader(i.head[:])
	i.heard()
	return err
}

func (i *incoming) heard() { i.heardAt.Store(time.Now().UnixNano()) }

// lastHeard returns when the client last sent something.
func (i *incoming) lastHeard() time.Time { return time.Unix(0, i.heardAt.Load()) }

// readMessage reads and decodes the request whose header begin has read. The client must keep
// sending pieces of it.
func (i *incoming) readMessage(into *encode.Request) error {
	stream, limit := i.c.admitted, i.c.server.Gate.StreamMemory()
	size := int(binary.BigEndian.Uint32(i.head[1:]))
	if int64(size) > limit {
		return stream.TooMuch(fmt.Sprintf("a request of %d bytes", size))
	}
	defer stream.Drop(i)
	var data mem.BufferSlice
	defer func() { data.Free() }()
	for read := 0; read < size; {
		n := min(size-read, requestPiece)
		i.c.receiving.Reset(requestTimeout)
		piece, err := i.from.Read(n)
		i.c.receiving.Stop()
		if err != nil {
			return unfinished(err)
		}
		i.heard()
		if data == nil {
			data = piece // usually all there is
		} else {
			data = append(data, piece...)
		}
		if read += n; read > requestPiece {
			stream.Hold(i, 2*int64(read)) // the pieces, and one copy of them to decode
		}
	}
	if i.head[0] != 0 {
		plain, err := i.inflate(data)
		if err != nil {
			return err
		}
		data.Free()
		data = plain
		stream.Hold(i, 2*int64(data.Len()))
	}
	into.Limit = limit
	if err := encode.Codec().Unmarshal(data, into); err != nil {
		if tooMuch := (*encode.TooMuchError)(nil); errors.As(err, &tooMuch) {
			return stream.TooMuch(tooMuch.Error())
		}
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// inflate decompresses a request.
func (i *incoming) inflate(data mem.BufferSlice) (mem.BufferSlice, error) {
	name := i.from.RecvCompress()
	compressor := encoding.GetCompressor(name)
	if compressor == nil {
		return nil, status.Errorf(codes.Unimplemented, "requests compressed by %q cannot be read", name)
	}
	from := data.Reader()
	defer from.Close()
	reader, err := compressor.Decompress(from)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "a request cannot be decompressed: %v", err)
	}
	limit := i.c.server.Gate.StreamMemory()
	plain, err := mem.ReadAll(io.LimitReader(reader, limit+1), mem.DefaultBufferPool())
	if err == nil && int64(plain.Len()) <= limit {
		return plain, nil
	}
	plain.Free()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "a request cannot be decompressed: %v", err)
	}
	return nil, i.c.admitted.TooMuch("a compressed request")
}

// unfinished returns the error of a request that ended early.
func unfinished(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, "the stream ended in the middle of a request")
	}
	return err
}
