package main

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// raw passes messages on as they are: no types have to be generated for them.
type raw struct{}

// Name implements encoding.CodecV2: what clients in other languages say, too.
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
