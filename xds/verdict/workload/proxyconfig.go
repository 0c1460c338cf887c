package workload

import (
	"fmt"
	"maps"

	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// ProxyConfig judges a ProxyConfig: whether it selects a proxy, and whether an older one counts in its
// place. Of one level, the mesh, a namespace or the workloads that a selector matches, the oldest counts
// alone.
func ProxyConfig(v *verdict.Judge, object *config.Config) {
	j := &judge{v}
	selectorOf := func(c *config.Config) labels.Instance {
		return c.Spec.(*networkingv1beta1.ProxyConfig).GetSelector().GetMatchLabels()
	}
	selector := selectorOf(object)
	j.unselected(object.Namespace, selector)
	for o := range j.Objects(schema.ProxyConfig, object.Namespace) {
		other := selectorOf(o)
		if config.Compare(o, object) >= 0 || (len(other) > 0) != (len(selector) > 0) || len(selector) > 0 && !maps.Equal(selector, other) && !j.overlap(object.Namespace, selector, other) {
			continue
		}
		whom := "the namespace"
		switch {
		case len(selector) > 0:
			whom = "workloads that both select"
		case object.Namespace == j.Mesh().MeshConfig().GetRootNamespace():
			whom = "the mesh"
		}
		j.Add(verdict.Verdict{
			Code: verdict.ProxyConfigOverlap, Field: "spec", Other: o.Key(),
			Message: fmt.Sprintf("%s is older, and counts alone for %s", o.Key(), whom),
			Remedy:  "put both into one ProxyConfig, or give them other labels",
		})
		return
	}
}

// unselected tells of a ProxyConfig whose labels no known proxy of its namespace has.
func (j *judge) unselected(namespace string, selector labels.Instance) {
	if len(selector) == 0 || j.Selects(selector, j.Known(verdict.PlacedRow, namespace)) || j.Selects(selector, j.Known(verdict.UnplacedRow, namespace)) {
		return
	}
	v := verdict.Verdict{
		Code: verdict.PolicyUnused, Field: "spec.selector",
		Message: "selects no known proxy of namespace " + namespace + ": it has no effect until one has the labels",
		Remedy:  "mend the labels, or start the proxy of the workload",
	}
	if namespace == j.Mesh().MeshConfig().GetRootNamespace() {
		v.Remedy = "for proxies of another namespace write it there: of this one only a ProxyConfig without a selector is for the mesh"
	}
	j.Add(v)
}
