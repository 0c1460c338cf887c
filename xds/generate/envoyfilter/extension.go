package envoyfilter

import (
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/wasmplugin"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Extensions makes the configurations of filters that come by themselves (ECDS): what policies say,
// WasmPlugins, and what EnvoyFilters add (EXTENSION_CONFIG). The names of the former are taken.
type Extensions struct{ policy.Generator }

var _ generate.Generator = Extensions{}

// Otherwise makes what stands in for a configuration that a proxy rejects; nil for those of EnvoyFilters.
func Otherwise(name string) proto.Message {
	if wasmplugin.Is(name) {
		return wasmplugin.Otherwise(name)
	}
	return policy.Otherwise(name)
}

// Build implements generate.Generator.
func (e Extensions) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	patches := v.Patches(networking.EnvoyFilter_EXTENSION_CONFIG, patch.Place{Kind: networking.EnvoyFilter_EXTENSION_CONFIG, Name: name})
	if policy.IsSlot(name) {
		refuse(v, name, patches)
		return e.Generator.Build(v, name)
	}
	if wasmplugin.Is(name) {
		refuse(v, name, patches)
		message, err := wasmplugin.Build(v, name)
		return message, nil, err
	}
	made, results := patch.Extensions(patches)
	v.NotePatches(results)
	out, err := first(made)
	return out.message, out.needs, err
}
