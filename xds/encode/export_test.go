package encode

import "google.golang.org/grpc/mem"

// Stats describe the content of a cache, and the work it did.
type Stats struct {
	Bytes int // kept
	Built int // runs encoded so far
}

// Stats tells what the cache keeps.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Bytes: c.bytes, Built: c.built}
}

// Buffers are the bytes of the message. Shared and read-only.
func (m *Message) Buffers() mem.BufferSlice { return m.buffers }

// NewBounded is New with another bound of what is kept.
func NewBounded(controlPlane string, maxBytes int) *Cache {
	c := New(controlPlane)
	c.maxBytes = maxBytes
	return c
}
