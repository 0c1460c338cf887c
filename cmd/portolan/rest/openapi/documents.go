package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// swagger returns the whole document in version 2.
func swagger(schemas schema.Set, o Options) *spec.Swagger {
	paths, definitions := map[string]spec.PathItem{}, spec.Definitions{}
	for k, version := range versionsOf(schemas) {
		resource{k, version, o.HasStatus != nil && o.HasStatus(k)}.paths(paths)
	}
	for name, s := range Definitions(schemas) {
		definitions[name] = *s
	}
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "Portolan", Version: o.Version}},
		Paths:       &spec.Paths{Paths: paths},
		Definitions: definitions,
	}}
}

// withoutNullable returns a document without what version 2 does not know.
func withoutNullable(document *spec.Swagger) *spec.Swagger {
	walker := schemamutation.Walker{
		RefCallback: schemamutation.RefCallbackNoop,
		SchemaCallback: func(s *spec.Schema) *spec.Schema {
			if !s.Nullable {
				return s
			}
			out := *s
			out.Nullable = false
			return &out
		},
	}
	return walker.WalkRoot(document)
}

// groupVersions returns the API versions of all kinds as documents name them:
// apis/networking.istio.io/v1, api/v1.
func groupVersions(schemas schema.Set) []string {
	var out []string
	seen := map[string]bool{}
	for k, version := range versionsOf(schemas) {
		if name := strings.TrimPrefix(root(k, version), "/"); !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}
