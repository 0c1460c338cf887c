package patch

import networking "istio.io/api/networking/v1alpha3"

// Adds says whether the patch adds a resource of its own: no virtual host within a listener, and no
// part of a resource.
func (p *Patch) Adds() bool {
	switch p.ApplyTo {
	case networking.EnvoyFilter_CLUSTER, networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_VIRTUAL_HOST:
		return p.Err == nil && p.Operation == networking.EnvoyFilter_Patch_ADD
	}
	return false
}

func (p *Patch) mayAdd(at Place) bool {
	if p.Err != nil || p.ApplyTo != at.Kind {
		return false
	}
	switch at.Kind {
	case networking.EnvoyFilter_CLUSTER, networking.EnvoyFilter_LISTENER:
		adds := p.addsIn(at.Kind, at.Context)
		if at.Context == networking.EnvoyFilter_SIDECAR_OUTBOUND {
			adds = adds || p.addsIn(at.Kind, networking.EnvoyFilter_SIDECAR_INBOUND)
		}
		return adds && p.value.(named).GetName() == at.Name
	case networking.EnvoyFilter_VIRTUAL_HOST:
		return p.addsVirtualHost(at) && p.value.(named).GetName() == at.Name && p.matchesRoutes(factsOfRoutes(at.Routes, at))
	case networking.EnvoyFilter_EXTENSION_CONFIG:
		return p.value != nil && p.value.(named).GetName() == at.Name
	}
	return at.Kind == networking.EnvoyFilter_BOOTSTRAP
}
