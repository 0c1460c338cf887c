package encode

import (
	"google.golang.org/grpc/mem"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Header holds the fields of a response besides the resources.
type Header struct {
	TypeURL string
	Nonce   string
	// Version is version_info, or system_version_info in delta.
	Version string
}

// Message is a response as it goes over the wire. The Codec sends it.
type Message struct{ buffers mem.BufferSlice }

// Size returns the bytes of the message.
func (m *Message) Size() int { return m.buffers.Len() }

// World makes a DiscoveryResponse.
func (c *Cache) World(h Header, resources []*resource.Resource) *Message {
	return c.message(h, resources, nil, false)
}

// Delta makes a DeltaDiscoveryResponse.
func (c *Cache) Delta(h Header, resources []*resource.Resource, removed []string) *Message {
	return c.message(h, resources, removed, true)
}

// maxHead is the most bytes that precede the content of a field of a response.
const maxHead = 1 + 5

// message appends the buffer with the fields of one stream to the shared buffers.
func (c *Cache) message(h Header, resources []*resource.Resource, removed []string, delta bool) *Message {
	server := worldControlPlane
	if delta {
		server = deltaControlPlane
	}
	size := len(h.Version) + len(h.TypeURL) + len(h.Nonce) + len(c.controlPlane) + 4*maxHead
	for _, name := range removed {
		size += len(name) + maxHead
	}
	own := writer{b: make([]byte, 0, size)}
	own.string(responseVersion, h.Version)
	own.string(responseTypeURL, h.TypeURL)
	own.string(responseNonce, h.Nonce)
	for _, name := range removed {
		own.content(deltaRemoved, name)
	}
	own.content(server, c.controlPlane)
	return &Message{append(c.encode(resources, delta), mem.SliceBuffer(own.b))}
}
