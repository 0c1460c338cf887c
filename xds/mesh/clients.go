package mesh

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// followClients follows the selectors of client proxies in DestinationRules. A class knows
// only those of its own namespace, so proxies that no rule tells apart share a class.
func (t attachmentTable) followClients(from, to *PushContext) {
	count := func(c *config.Config, by int) {
		if selector := c.Spec.(*networking.DestinationRule).GetWorkloadSelector(); selector != nil {
			l := labels.Instance(selector.GetMatchLabels())
			t.count(to, attachmentKey(class.Client, c.Namespace), l.String(), l, by)
		}
	}
	eachObject(from, to, destinationRulePath, func(c pmap.Change[*config.Config]) {
		if c.HasNew {
			count(c.New, 1)
		}
		if c.HasOld {
			count(c.Old, -1)
		}
	})
}
