package xds

import (
	"google.golang.org/grpc/codes"

	"github.com/portolan-mesh/portolan/xds/progress"
)

// healthType is the type of the requests by which the agent of a machine says how it is. They
// ask for nothing, and are not answered. (Istio: pkg/model.HealthInfoType.)
const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// maxHealth bounds the message of a report that is kept.
const maxHealth = 1 << 10

// noteHealth passes on what a machine says of its health, as Istio's agent says it: a request
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
