package encoded

import (
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Header is what a response has beside resources.
type Header struct {
	TypeURL string
	Nonce   string
	// Version is version_info, and system_version_info in delta.
	Version string
}

// Message is a response as it goes over the wire. It is a proto.Message, too,
// which whoever does not know better may read or encode again.
type Message struct {
	buffers mem.BufferSlice
	decoded func() protoreflect.Message
}

var _ proto.Message = (*Message)(nil)

// World is a DiscoveryResponse.
func (c *Cache) World(h Header, resources []*resource.Resource) *Message {
	w := c.header(h)
	w.controlPlane(worldControlPlane, c.options.ControlPlane)
	return message(c.encode(resources, false), w, &discoveryv3.DiscoveryResponse{})
}

// Delta is a DeltaDiscoveryResponse.
func (c *Cache) Delta(h Header, resources []*resource.Resource, removed []string) *Message {
	w := c.header(h)
	for _, name := range removed {
		w.tag(deltaRemoved, len(name))
		w.b = append(w.b, name...)
	}
	w.controlPlane(deltaControlPlane, c.options.ControlPlane)
	return message(c.encode(resources, true), w, &discoveryv3.DeltaDiscoveryResponse{})
}

func (c *Cache) header(h Header) *writer {
	w := &writer{}
	w.string(responseVersion, h.Version)
	w.string(responseTypeURL, h.TypeURL)
	w.string(responseNonce, h.Nonce)
	return w
}

func (w *writer) controlPlane(field protowire.Number, identifier string) {
	w.tag(field, sizeString(controlPlaneIdentifier, identifier))
	w.string(controlPlaneIdentifier, identifier)
}

// message is the shared buffers with those of the stream after them.
func message(shared mem.BufferSlice, own *writer, empty proto.Message) *Message {
	own.flush()
	m := &Message{buffers: append(shared, own.out...)}
	m.decoded = sync.OnceValue(func() protoreflect.Message {
		if err := proto.Unmarshal(m.buffers.Materialize(), empty); err != nil {
			panic("encoded: a message of its own making: " + err.Error())
		}
		return empty.ProtoReflect()
	})
	return m
}

// Size is how many bytes the message has.
func (m *Message) Size() int { return m.buffers.Len() }

// Buffers are the bytes of the message. Shared and read-only.
func (m *Message) Buffers() mem.BufferSlice { return m.buffers }

// ProtoReflect implements proto.Message. It decodes the message.
func (m *Message) ProtoReflect() protoreflect.Message { return m.decoded() }
