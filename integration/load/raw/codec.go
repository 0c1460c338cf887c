package raw

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Frame is the bytes of a message.
type Frame struct {
	Bytes  []byte
	buffer mem.Buffer // set if it was received
}

// Free releases the bytes of a received message. They must not be used afterwards.
func (f *Frame) Free() {
	if f.buffer != nil {
		f.buffer.Free()
	}
	f.Bytes, f.buffer = nil, nil
}

// Codec passes Frames on as they are.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name implements encoding.CodecV2. It is the name that every peer knows.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*Frame)
	if !ok {
		return nil, fmt.Errorf("a %T is no frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.Bytes)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		return fmt.Errorf("a %T is no frame", v)
	}
	f.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
	f.Bytes = f.buffer.ReadOnlyData()
	return nil
}
