package mesh

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// clientSelectorTable counts, by namespace and selector (its String), the
// DestinationRules that have this selector of client proxies. A class knows only the
// selectors of its own namespace, so proxies that no rule tells apart share a class.
type clientSelectorTable struct{ groups[int] }

var clientSelectorRows = clientSelectorTable{groupsOf[int](clientSelectors)}

func (t clientSelectorTable) follow(from, to *PushContext) {
	count := func(c *config.Config, by int) {
		selector := c.Spec.(*networking.DestinationRule).GetWorkloadSelector()
		if selector == nil {
			return
		}
		key := labels.Instance(selector.GetMatchLabels()).String()
		if n := t.rowsOf(to).Value(c.Namespace).Value(key) + by; n > 0 {
			t.add(to, c.Namespace, key, n)
		} else {
			t.remove(to, c.Namespace, key)
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

// clientSelectorsOf returns the selectors of the namespace's DestinationRules that match
// a workload there, in order, each followed by a class.Separator.
func (p *PushContext) clientSelectorsOf(namespace string, workload labels.Instance) string {
	var out strings.Builder
	for selector := range clientSelectorRows.rowsOf(p).Value(namespace).Keys() {
		if labels.Parse(selector).SubsetOf(workload) {
			out.WriteString(selector + class.Separator)
		}
	}
	return out.String()
}
