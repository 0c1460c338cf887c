package xds

import (
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
)

const (
	// maxHealth bounds the message of a report that is kept.
	maxHealth = 1 << 10
	// maxFacts bounds the node of a request that has facts.
	maxFacts = 8 << 10
)

// machineRequests are the requests of an agent that are about its machine, by type: no generator makes
// resources for them.
var machineRequests = map[string]func(*Connection, *message){
	resource.HealthType: (*Connection).noteHealth, resource.FactsType: (*Connection).noteFacts, resource.RegistrationType: (*Connection).askStanding,
}

// noteHealth passes on what a machine says of its health by a request of resource.HealthType, which
// asks for nothing and is not answered, as Istio's agent says it: a request
// without an error detail says that it is healthy, one with an error detail that it is not, and
// why. The code CANCELLED says that the machine leaves for good. Istio's agent never sends that
// code, and Istio takes it as unhealthy.
func (c *Connection) noteHealth(m *message) {
	if m.code == codes.Canceled {
		c.server.departures.Add(c.proxy.ID)
	}
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

// machineTold is what the agent on a stream was told of the registration of its machine.
type machineTold struct {
	asks      bool   // it has asked
	version   string // of the resource that it has; empty for none
	responses int
}

// askStanding takes a request of resource.RegistrationType. Answers to responses change nothing: an
// agent that does not understand one goes on without.
func (c *Connection) askStanding(m *message) {
	if c.registration == nil || m.request.Nonce != "" {
		return
	}
	c.told.asks, c.told.version = true, ""
	for _, has := range m.request.Initial {
		if has.Name == resource.RegistrationName {
			c.told.version = has.Version
		}
	}
}

// tellStanding tells the agent what has become of the registration, if it has asked and that is news.
func (c *Connection) tellStanding() error {
	if !c.told.asks {
		return nil
	}
	out := protocol.Response{}
	standing, decided := c.registration.Standing()
	version := ""
	switch {
	case !decided:
		return nil
	case standing != (node.Standing{}):
		r, err := resource.New(resource.RegistrationName, standing.Message())
		if err != nil {
			return err
		}
		out.Resources, version = []*resource.Resource{r}, r.Version
	default:
		out.Removed = []string{resource.RegistrationName}
	}
	if version == c.told.version {
		return nil
	}
	c.told.version = version
	c.told.responses++
	out.Nonce = strconv.Itoa(c.told.responses)
	out.Version = out.Nonce
	return c.write(c.wire.encode(resource.RegistrationType, &out))
}
