package envoyfilter

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
)

// Kinds returns a set of kinds in which an EnvoyFilter also has the faults of patch.Check: values of
// patches that cannot be read, or that no Envoy takes.
func Kinds(of schema.Set) schema.Set {
	return of.Checking(schema.EnvoyFilter, func(c *config.Config, r *schema.Report) {
		faults, _ := Check(c)
		for _, f := range faults {
			r.Fault(f.Field, "%s", f.Message)
		}
	})
}

// Check returns what patch.Check finds in an object, by the paths of its document; nothing for
// objects of other kinds.
func Check(c *config.Config) (faults, warnings []*schema.FieldError) {
	spec, ok := c.Spec.(*networking.EnvoyFilter)
	if !ok {
		return nil, nil
	}
	wrong, odd := patch.Check(spec)
	return inSpec(wrong), inSpec(odd)
}

// Weakens returns what patch.Weakens finds in an object, by the paths of its document; nothing for
// objects of other kinds.
func Weakens(c *config.Config) []*schema.FieldError {
	spec, ok := c.Spec.(*networking.EnvoyFilter)
	if !ok {
		return nil
	}
	return inSpec(patch.Weakens(spec))
}

func inSpec(findings []patch.Finding) []*schema.FieldError {
	var out []*schema.FieldError
	for _, f := range findings {
		out = append(out, &schema.FieldError{Field: "spec." + f.Field, Message: f.Message})
	}
	return out
}
