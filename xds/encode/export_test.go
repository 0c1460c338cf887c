package encode

import "google.golang.org/grpc/mem"

// Stats describes the content of a cache, and the work it did.
type Stats struct {
	Bytes int // bytes kept
	Built int // runs encoded so far
}

// Stats returns the statistics of the cache.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Bytes: c.bytes, Built: c.built}
}

// Buffers returns the bytes of the message. They are shared and read-only.
func (m *Message) Buffers() mem.BufferSlice { return m.buffers }

// NewBounded is New, with a bound of the bytes that the cache keeps.
func NewBounded(controlPlane string, maxBytes int) *Cache {
	c := New(controlPlane)
	c.maxBytes = maxBytes
	return c
}
