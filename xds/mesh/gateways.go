package mesh

import (
	"strings"

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
	eachObject(from, to, gatewayPath, func(c pmap.Change[*config.Config]) {
		var g *routing.Gateway
		if c.HasNew {
			g = routing.NewGateway(c.New)
		}
		t.put(to, c.Key, g, c.HasNew)
	})
}

// selectedGateways returns the paths of the Gateways whose selector matches a router's
// labels, in order.
func (p *PushContext) selectedGateways(workload labels.Instance) string {
	var out []string
	for path, g := range gatewayRows.rowsOf(p).All() {
		if labels.Instance(g.Spec.GetSelector()).SubsetOf(workload) {
			out = append(out, path)
		}
	}
	return strings.Join(out, class.Separator)
}
