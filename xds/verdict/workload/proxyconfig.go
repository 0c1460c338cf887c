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

// ProxyConfig judges a ProxyConfig: whether an older one counts in its place. Of one level, the mesh,
// a namespace or the workloads that a selector matches, the oldest counts alone.
func ProxyConfig(v *verdict.Judge, object *config.Config) {
	j := &judge{v}
	selectorOf := func(c *config.Config) labels.Instance {
		return c.Spec.(*networkingv1beta1.ProxyConfig).GetSelector().GetMatchLabels()
	}
	selector := selectorOf(object)
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
