// Package raw sends and receives gRPC messages as their bytes, and finds fields
// in them without decoding the rest.
package raw

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Frame is a message as its bytes.
type Frame struct {
	Bytes  []byte
	buffer mem.Buffer // of one that was received
}

// Free gives the bytes of a received message back; they must not be used after.
func (f *Frame) Free() {
	if f.buffer != nil {
		f.buffer.Free()
	}
	f.Bytes, f.buffer = nil, nil
}

// Codec passes Frames on as they are.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is that under which every peer knows the encoding.
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

// Each calls f with the number and the content of every field of a message that
// has a length.
func Each(message []byte, f func(n protowire.Number, content []byte)) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
				return protowire.ParseError(size)
			}
			message = message[size:]
			continue
		}
		content, size := protowire.ConsumeBytes(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		f(n, content)
	}
	return nil
}

// Field is the last content of a field of a message, nil where it has none or the
// message cannot be read.
func Field(message []byte, number protowire.Number) []byte {
	var out []byte
	err := Each(message, func(n protowire.Number, content []byte) {
		if n == number {
			out = content
		}
	})
	if err != nil {
		return nil
	}
	return out
}

// AppendText appends a field of text, unless number is 0 or the text is empty.
func AppendText(to []byte, number protowire.Number, text string) []byte {
	if number == 0 || text == "" {
		return to
	}
	return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), text)
}
