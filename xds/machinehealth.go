package xds

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/progress"
)

const (
	// maxHealth bounds the message of a report that is kept.
	maxHealth = 1 << 10
	// maxFacts bounds the node of a request that has facts.
	maxFacts = 8 << 10
)

// noteHealth passes on what a machine says of its health by a request of resource.HealthType, which
// asks for nothing and is not answered, as Istio's agent says it: a request
// without an error detail says that it is healthy, one with an error detail that it is not, and
// why. The code CANCELLED says that the machine leaves for good. Istio's agent never sends that
// code, and Istio takes it as unhealthy.
func (c *Connection) noteHealth(m *message) {
	if c.registration == nil {
		return
	}
	why := progress.Shorten(m.request.Message, maxHealth)
	if m.code == codes.Canceled {
		c.registration.Depart(why)
		return
	}
	c.registration.Report(!m.request.Rejected, why)
}

// noteFacts keeps what an agent says of its machine by a request of resource.FactsType, which
// asks for nothing and is not answered. A request that is too large says nothing.
func (c *Connection) noteFacts(m *message) {
	if proto.Size(m.node) <= maxFacts {
		facts := node.FactsOf(m.node.GetMetadata())
		c.note.SetFacts(&facts)
	}
}
