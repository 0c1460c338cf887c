package encode

import (
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/portolan-mesh/portolan/xds/resource"
)

// Header holds the fields of a response besides the resources.
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
	delta   bool
	decode  sync.Once
	decoded protoreflect.Message
}

var _ proto.Message = (*Message)(nil)

// World is a DiscoveryResponse.
func (c *Cache) World(h Header, resources []*resource.Resource) *Message {
	return c.message(h, resources, nil, false)
}

// Delta is a DeltaDiscoveryResponse.
func (c *Cache) Delta(h Header, resources []*resource.Resource, removed []string) *Message {
	return c.message(h, resources, removed, true)
}

// message joins the shared buffers, with the buffer of the stream after them.
func (c *Cache) message(h Header, resources []*resource.Resource, removed []string, delta bool) *Message {
	server := worldControlPlane
	if delta {
		server = deltaControlPlane
	}
	size := sizeString(responseVersion, h.Version) + sizeString(responseTypeURL, h.TypeURL) + sizeString(responseNonce, h.Nonce)
	for _, name := range removed {
		size += protowire.SizeTag(deltaRemoved) + protowire.SizeBytes(len(name))
	}
	identifier := sizeString(controlPlaneIdentifier, c.options.ControlPlane)
	size += protowire.SizeTag(server) + protowire.SizeBytes(identifier)

	own := writer{b: make([]byte, 0, size)}
	own.string(responseVersion, h.Version)
	own.string(responseTypeURL, h.TypeURL)
	own.string(responseNonce, h.Nonce)
	for _, name := range removed {
		own.tag(deltaRemoved, len(name))
		own.b = append(own.b, name...)
	}
	own.tag(server, identifier)
	own.string(controlPlaneIdentifier, c.options.ControlPlane)
	return &Message{buffers: append(c.encode(resources, delta), mem.SliceBuffer(own.b)), delta: delta}
}

// Size is how many bytes the message has.
func (m *Message) Size() int { return m.buffers.Len() }

// ProtoReflect implements proto.Message. It decodes the message.
func (m *Message) ProtoReflect() protoreflect.Message {
	m.decode.Do(func() {
		var into proto.Message = &discoveryv3.DiscoveryResponse{}
		if m.delta {
			into = &discoveryv3.DeltaDiscoveryResponse{}
		}
		if err := proto.Unmarshal(m.buffers.Materialize(), into); err != nil {
			panic("encoded: a message of its own making: " + err.Error())
		}
		m.decoded = into.ProtoReflect()
	})
	return m.decoded
}
