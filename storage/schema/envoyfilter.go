package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

func envoyFilter() *Schema {
	return definition[*networking.EnvoyFilter]{
		kind: EnvoyFilter, plural: "envoyfilters", shortName: "ef",
		newSpec: func() *networking.EnvoyFilter { return &networking.EnvoyFilter{} },
		stored:  true,
		check:   checkEnvoyFilter,
	}.schema()
}

func checkEnvoyFilter(c checker, f *networking.EnvoyFilter) {
	c.at("workloadSelector").selector(f.WorkloadSelector)
	each(c.at("configPatches"), f.ConfigPatches, func(c checker, p *networking.EnvoyFilter_EnvoyConfigObjectPatch) {
		if p.GetApplyTo() == networking.EnvoyFilter_INVALID {
			c.at("applyTo").fail("is missing: say what is patched")
		}
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
