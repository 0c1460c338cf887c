package schema

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
)

func envoyFilter() *Schema {
	return definition[*networking.EnvoyFilter]{
		kind: EnvoyFilter, plural: "envoyfilters", shortName: "ef",
		codec:  config.Protobuf[networking.EnvoyFilter](),
		served: envoyFilterFields,
		check:  checkEnvoyFilter,
	}.schema()
}

var envoyFilterFields = serve("workloadSelector", "targetRefs", "priority").with("configPatches",
	serve("applyTo", "patch").with("match", serve("context", "proxy", "listener", "routeConfiguration", "cluster")))

// checkEnvoyFilter checks what can be said without Envoy's API: who applies patches checks their
// values.
func checkEnvoyFilter(c checker, f *networking.EnvoyFilter) {
	c.at("workloadSelector").selector(f.WorkloadSelector)
	if f.WorkloadSelector != nil && len(f.TargetRefs) > 0 {
		c.at("workloadSelector").fail("excludes targetRefs: set one of the two")
	}
	each(c.at("targetRefs"), f.TargetRefs, checker.targetRef)
	each(c.at("configPatches"), f.ConfigPatches, func(c checker, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
		if p.GetApplyTo() == networking.EnvoyFilter_INVALID {
			c.at("applyTo").fail("is missing: say what is patched")
		}
		checkPatchMatch(c, p)
		checkPatchOperation(c, p)
		operation := p.GetPatch().GetOperation()
		switch {
		case p.GetPatch() == nil:
			c.at("patch").fail("is missing: say how it is changed")
		case operation == networking.EnvoyFilter_Patch_INVALID:
			c.at("patch", "operation").fail("is missing: say how it is changed")
		case operation != networking.EnvoyFilter_Patch_REMOVE && p.GetPatch().GetValue() == nil:
			c.at("patch", "value").fail("is missing: operation %s needs one", operation)
		}
	})
}
