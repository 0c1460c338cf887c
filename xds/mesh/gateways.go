package mesh

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
)

// gateways holds the Gateways by config path.
type gateways struct{ tableOf[*routing.Gateway] }

var gatewayRows = gateways{tableOf[*routing.Gateway]{gatewayObjects}}

func (t gateways) follow(from, to *PushContext) {
	eachClaimant(from, to, gatewayPath, func(c pmap.Change[*config.Config]) {
		var g *routing.Gateway
		if c.HasNew {
			g = routing.NewGateway(c.New, to.refused(c.New), to.Derived(c.Key))
		}
		t.put(to, c.Key, g, c.HasNew)
	})
}

// followGateways follows the selectors of Gateways, which attach to routers of all
// namespaces.
func (t attachmentTable) followGateways(from, to *PushContext) {
	t.followObjects(from, to, class.Gateway, gatewayPath, func(c *config.Config) labels.Instance {
		return c.Spec.(*networking.Gateway).GetSelector()
	})
}
