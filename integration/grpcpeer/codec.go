package main

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// raw is a codec that passes messages on as bytes, so no types need to be generated.
type raw struct{}

// Name implements encoding.CodecV2. It is the name that clients of other languages use, too.
func (raw) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a message is a *[]byte, no %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message is a *[]byte, no %T", v)
	}
	*b = data.Materialize()
	return nil
}
