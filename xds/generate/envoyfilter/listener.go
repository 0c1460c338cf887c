package envoyfilter

import (
	"iter"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Listeners patches listeners, with their filter chains and filters. Inbound listeners have their
// routes within.
type Listeners struct{}

var _ generate.Patch = Listeners{}

// Affected implements generate.Patch.
func (Listeners) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] {
	return func(yield func(string) bool) {
		addedNames(v, d, networking.EnvoyFilter_LISTENER, patch.AddedListeners, yield)
	}
}

// kindsWithin are the kinds of what is in an inbound listener.
var kindsWithin = []networking.EnvoyFilter_ApplyTo{networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST}

// Apply implements generate.Patch.
func (Listeners) Apply(v *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	at := patch.Place{Kind: networking.EnvoyFilter_LISTENER, Name: name, Context: contextOf(v)}
	before, _ := message.(*listenerv3.Listener)
	at.Port = before.GetAddress().GetSocketAddress().GetPortValue()
	patches := v.Patches(at.Kind, at)
	if at.Context == networking.EnvoyFilter_SIDECAR_INBOUND {
		for _, kind := range kindsWithin {
			patches = append(patches, v.Patches(kind, at)...)
		}
	}
	switch {
	case len(patches) == 0:
		return message, needs, nil
	case before == nil:
		out, err := add(v, patches, patch.AddedListeners)
		return out.message, out.needs, err
	}
	refuse(v, name, patches)
	after, results := patch.Listener(before, at, patches)
	v.NotePatches(results)
	out, err := patched(before, after, needs)
	return out.message, out.needs, err
}
